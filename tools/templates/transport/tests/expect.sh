# The expected results; read by train.sh.
train once --ranks=2
at_least once 0.95

# Training must be reproducible, and bitwise identical with any other transport.
train again --ranks=2
same once again
train three --ranks=3
train other --ranks=3 --transport=auto --set=transport.reduction_order=pairwise
for file in three/*; do
    same_tensors "$file" "other/${file##*/}" && continue
    echo "the weights differ from those of another transport"
    exit 1
done
