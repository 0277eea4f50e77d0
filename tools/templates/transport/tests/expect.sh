# What must come of it; read by train.sh.
train once --ranks=2
at_least once 0.95

# Twice the same, and the same weights, to the bit, as by any other transport.
train again --ranks=2
same once again
train three --ranks=3
train other --ranks=3 --transport=auto --set=transport.reduction_order=pairwise
for file in three/*; do
    same_tensors "$file" "other/${file##*/}" && continue
    echo "another transport sums otherwise"
    exit 1
done
