# The expected results; read by train.sh.
train once
at_least once 0.95

# Training must be reproducible, and bitwise identical if it is stopped after 100
# iterations and resumed.
train again
same once again
train part --iterations=100
cp -r part resumed
train resumed --resume=auto
last=$(basename "$(ls -t once/*.safetensors | head -n 1)")
same_tensors "once/$last" "resumed/$last" || { echo "the resumed run differs"; exit 1; }

# Two ranks that split the batch may differ by rounding.
train two --ranks=2 --scaling=strong
near once two

# This model does what synchronous training does.
train synchronous --consistency=synchronous
same once synchronous
