# What must come of it; read by train.sh.
train once
at_least once 0.95

# Twice the same. Stopped after 100 iterations and resumed: the same as in one go.
train again
same once again
train part --iterations=100
cp -r part resumed
train resumed --resume=auto
tail=$(basename "$(ls -t once/*.safetensors | head -n 1)")
same_tensors "once/$tail" "resumed/$tail" || { echo "resumed differs"; exit 1; }

# Two ranks share the batch: the same, but for the rounding of sums.
train two --ranks=2 --scaling=strong
near once two
