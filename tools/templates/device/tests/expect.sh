# What must come of it; read by train.sh.
train once
at_least once 0.95

# Twice the same; two ranks share the batch: the same, but for the rounding of sums.
train again
same once again
train two --ranks=2 --scaling=strong
near once two
