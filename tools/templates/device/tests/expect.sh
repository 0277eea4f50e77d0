# What must come of it; read by train.sh.
train once
at_least once 0.95

# Twice the same; two ranks; stopped and resumed.
train again
same once again
train two --ranks=2 --scaling=strong
at_least two 0.95
