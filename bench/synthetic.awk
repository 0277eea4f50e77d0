# Rewrites a net.ini so that it trains on made-up samples, without tests:
#   awk -v shape=1,28,28 -f bench/synthetic.awk models/lenet.ini
# Batch, scale and mean stay as they are.
/^\[/ { section = $0 }
section == "[data]" && /^\[/ { print; print "source = synthetic"; print "shape = " shape; next }
section == "[data]" && !/^(batch|scale|mean)/ { next }
section == "[data.test]" { next }
{ print }
