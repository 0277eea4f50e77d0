# What must come of it; read by train.sh.
train once
at_least once 0.95

# Twice the same; nearly so on two ranks; with less memory the same bits.
train again
same once again
train two --ranks=2 --scaling=strong
near once two
train low --set=train.recompute=yes
same once low
