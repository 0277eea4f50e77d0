# What must come of it; read by train.sh.
train once
at_least once 0.95

# The same samples in every run, and however many ranks share them out.
train again
same once again
train two --ranks=2 --scaling=strong
near once two
