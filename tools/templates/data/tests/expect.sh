# What must come of it; read by train.sh.
train once
at_least once 0.95

# The same samples in every run, and the same set of them however many ranks share it.
train again
same once again
train two --ranks=2 --scaling=strong
at_least two 0.95
