# The expected results; read by train.sh.
train once
at_least once 0.95

# Samples must not depend on the run or on the number of ranks that split them.
train again
same once again
train two --ranks=2 --scaling=strong
near once two
