# What must come of it; read by train.sh.
train once
at_least once 0.95

# Twice the same; the same net on two ranks; less memory, the same bits.
train again
same once again
train two --ranks=2 --scaling=strong
at_least two 0.95
train low --set=run.memory=low
same once low
