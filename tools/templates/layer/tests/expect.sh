# The expected results; read by train.sh.
train once
at_least once 0.95

# Training must be reproducible, and bitwise identical if activations are recomputed.
# Two ranks that split the batch may differ by rounding.
train again
same once again
train two --ranks=2 --scaling=strong
near once two
train low --set=train.recompute=yes
same once low
