/* The table of bad inputs. Messages are given in part: the name, the place or the
 * remedy. */
#include "cases.h"

#define DATA \
    "[data]\nsource = idx\nimages = images\nlabels = labels\nbatch = 8\n" \
    "[data.test]\nsource = idx\nimages = images.gz\nlabels = labels\n"
#define SOLVER "[solver]\ntype = sgd\nlearning_rate = 0.01\n"
#define RUN "[train]\ncheckpoint_last = no\ncheckpoint_minutes = 0\n"
#define LAYERS \
    "[conv]\ntype = convolution\nnum_output = 3\nkernel_size = 3\n" \
    "[pool]\ntype = pooling\nkernel_size = 2\nstride = 2\n" \
    "[ip]\ntype = inner_product\nnum_output = 4\n" \
    "[accuracy]\ntype = accuracy\n" \
    "[loss]\ntype = softmax_loss\n"

#define BLOCK \
    "[block b]\nparams = width\n" \
    "[b.conv]\ntype = convolution\nnum_output = $width\nkernel_size = 3\n"

const char good_net[] = "[net]\nname = small\n" DATA SOLVER RUN LAYERS;

#define LEARN(TEXT) DATA SOLVER TEXT RUN
#define CIFAR(FILES) \
    "[data]\nsource = cifar\nfolder = .\nfiles = " FILES \
    "\nbatch = 2\n" SOLVER RUN LAYERS
#define SET(TEXT) \
    { "train", "@", "--iterations=1", "--set", TEXT }
#define TRAIN \
    { "train", "@", "--iterations=1" }
#define CHECK \
    { "check", "@" }
#define WEIGHTS(FILE) \
    { "test", "@", "--weights", FILE }

const fault_case faults[] = {
    /* The command line. */
    {"no command", NULL, {NULL}, 2, "Usage: dlcore"},
    {"unknown command", NULL, {"trian", "@"}, 2, "did you mean 'train'?"},
    {"no net", NULL, {"train"}, 2, "no net: give the path"},
    {"two nets", NULL, {"train", "@", "more.ini"}, 2, "only one net.ini"},
    {"unknown option", NULL, {"train", "@", "--rnaks=2"}, 2, "--rnaks"},
    {"ranks is not a number", NULL, {"train", "@", "--ranks=two"}, 2, "two"},
    {"no ranks", NULL, {"train", "@", "--ranks=0"}, 2, "ranks"},
    {"too many ranks", NULL, {"train", "@", "--ranks=99999"}, 2, "ranks"},
    {"wrong scaling", NULL, {"train", "@", "--scaling=storng"}, 2, "strong"},
    {"more ranks than samples",
     NULL,
     {"train", "@", "--ranks=9", "--scaling=strong"},
     2,
     "cannot be split among 9 ranks"},
    {"epochs and iterations",
     NULL,
     {"train", "@", "--epochs=1", "--iterations=1"},
     2,
     "give one"},
    {"a negative seed", NULL, {"train", "@", "--seed=-1"}, 2, "seed"},
    {"set without a value", NULL, SET("train.seed"), 2, "train.seed"},
    {"set of an unknown section", NULL, SET("trian.seed=1"), 2, "train"},
    {"set of an unknown key", NULL, SET("train.sede=1"), 2, "seed"},
    {"unknown transport",
     NULL,
     {"train", "@", "--ranks=2", "--transport=pigeon"},
     2,
     "pigeon"},
    {"unknown solver", NULL, {"train", "@", "--solver=sgdd"}, 2, "sgd"},
    {"unknown device", NULL, {"train", "@", "--device=abacus"}, 2, "abacus"},
    {"test without weights", NULL, {"test", "@"}, 2, "--weights"},
    {"weights that are not there", NULL, WEIGHTS("nothing.safetensors"), 4,
     "nothing.safetensors"},
    {"a log file in no folder",
     NULL,
     {"train", "@", "--log-file=no/such/log"},
     1,
     "no/such/log"},
    {"no passes", NULL, {"time", "@", "--passes=0"}, 2, "--passes=0"},
    {"passes is not a number", NULL, {"time", "@", "--passes=x"}, 2, "--passes"},
    {"a number of passes with a tail", NULL, {"time", "@", "--passes=5x"}, 2, "5x"},
    {"a number of passes too large for an int",
     NULL,
     {"plan", "@", "--passes=4294967297"},
     2,
     "4294967297: must be a whole number from 1 to"},
    {"no passes", NULL, {"time", "@", "--passes=0"}, 2, "--passes=0"},
    {"too many passes", NULL, {"time", "@", "--passes=9999999"}, 2, "100000"},
    {"an unknown order", NULL, {"time", "@", "--order=size"}, 2, "--order=size"},
    {"a picture in no folder",
     NULL,
     {"time", "@", "--plot=no/such/p.svg"},
     1,
     "no/such/p.svg"},
    {"a picture of another kind",
     NULL,
     {"time", "@", "--plot=p.png"},
     2,
     "must end in .svg"},
    {"a picture without a kind", NULL, {"time", "@", "--plot=."}, 2, ".svg"},
    {"a picture of another kind",
     NULL,
     {"bench", "comm", "--plot=svg"},
     2,
     "must end in .svg"},
    {"time of two ranks", NULL, {"time", "@", "--ranks=2"}, 2, "--ranks=1"},

    /* net.ini as a file. */
    {"no such file", NULL, {"train", "no.ini"}, 2, "no.ini"},
    {"a folder", NULL, {"train", "."}, 2, "."},
    {"not text", NULL, {"train", "net.bin"}, 2, "net.bin"},
    {"empty", "", CHECK, 2, "[data]"},
    {"no section", "name = x\n" DATA SOLVER LAYERS, CHECK, 2, ":1:"},
    {"an open bracket", "[net\n" DATA SOLVER LAYERS, CHECK, 2, ":1:"},
    {"a section twice", DATA SOLVER SOLVER LAYERS, CHECK, 2, "solver"},
    {"a key twice", "[net]\nname = a\nname = b\n" DATA SOLVER LAYERS, CHECK, 2, ":3:"},
    {"no equals sign", "[net]\nname\n" DATA SOLVER LAYERS, CHECK, 2, ":2:"},
    {"upper case", "[Net]\nname = a\n" DATA SOLVER LAYERS, CHECK, 2, ":1:"},

    /* Settings. */
    {"a number with a tail", NULL, SET("data.batch=64x"), 2, "64x"},
    {"a number out of range", NULL, SET("data.batch=0"), 2, "batch"},
    {"a number too large", NULL, SET("data.batch=99999999999999999999"), 2, "batch"},
    {"not a number", NULL, SET("solver.learning_rate=quick"), 2, "quick"},
    {"infinite", NULL, SET("solver.learning_rate=inf"), 2, "rate"},
    {"not a choice", NULL, SET("pool.method=mux"), 2, "max"},
    {"not a filler", NULL, SET("ip.weight_filler=xaver"), 2, "xavier"},
    {"a filler without an argument", NULL, SET("ip.weight_filler=gaussian"), 2,
     "gaussian"},
    {"not yes or no", NULL, SET("data.shuffle=perhaps"), 2, "perhaps"},
    {"a misspelt key", NULL, SET("conv.num_outptu=4"), 2, "num_output"},
    {"no source", "[data]\nbatch = 8\n" SOLVER LAYERS, CHECK, 2, "source"},
    {"an unknown source", NULL, SET("data.source=idxx"), 2, "idx"},
    {"no solver", DATA LAYERS, CHECK, 2, "type"},
    {"a policy without its end", NULL, SET("solver.policy=stepp"), 2, "step"},
    {"an unknown policy value", NULL, SET("solver.policy=multistep"), 2, "step_values"},

    /* Blocks. */
    {"no such block", DATA SOLVER "[u]\nblock = pair\n" LAYERS, CHECK, 2,
     "no block is called \"pair\""},
    {"a block without layers", DATA SOLVER "[block b]\n" LAYERS, CHECK, 2,
     "has no layers"},
    {"a parameter not given", DATA SOLVER BLOCK "[u]\nblock = b\n" LAYERS, CHECK, 2,
     "[u] needs width, a parameter of block b"},
    {"a parameter misspelt",
     DATA SOLVER BLOCK "[u]\nblock = b\nwidth = 3\nwidht = 3\n" LAYERS, CHECK, 2,
     "did you mean width?"},
    {"a parameter out of range",
     DATA SOLVER BLOCK "[u]\nblock = b\nwidth = 0\nrepeat = 2\n" LAYERS, CHECK, 2,
     "out of range: 1 .. 1048576 (as [u.1.conv] of line"},
    {"too many copies",
     DATA SOLVER BLOCK "[u]\nblock = b\nwidth = 3\nrepeat = 9999\n" LAYERS, CHECK, 2,
     "repeat: 9999 is out of range: 1 .. 1000"},
    {"a block of too many layers",
     DATA SOLVER BLOCK "[block c]\n[c.x]\nblock = b\nwidth = 3\nrepeat = 1000\n"
                       "[u]\nblock = c\nrepeat = 1000\n" LAYERS,
     CHECK, 2, "more than 20000 sections and keys once [u] is expanded"},
    {"a window larger than the image in a block",
     DATA SOLVER BLOCK "[u]\nblock = b\nwidth = 3\nrepeat = 4\n" LAYERS, CHECK, 2,
     "(as [u.4.conv] of line"},

    /* Layers. */
    {"an unknown layer", NULL, SET("conv.type=convolutoin"), 2, "convolution"},
    {"an unknown input", NULL, SET("ip.input=pol"), 2, "did you mean 'pool'?"},
    {"an input from further down", NULL, SET("conv.input=ip"), 2, "above"},
    {"an output that is not read", NULL, SET("ip.input=conv"), 2, "no layer reads"},
    {"no loss", DATA SOLVER "[ip]\ntype = inner_product\nnum_output = 4\n", CHECK, 2,
     "no layer is a loss"},
    {"a window larger than the image", NULL, SET("conv.kernel_size=9"), 2, "conv"},
    {"groups that don't divide", NULL, SET("conv.group=2"), 2, "group"},
    {"fewer outputs than classes", NULL, SET("ip.num_output=3"), 2,
     "it needs one output per class"},
    {"nothing to train", DATA SOLVER "[loss]\ntype = softmax_loss\n", TRAIN, 2, "loss"},
    {"a crop larger than the image", NULL, SET("data.transforms=center_crop(9)"), 2,
     "center_crop"},

    /* IDX files. */
    {"no images", NULL, SET("data.images=none"), 4, "none"},
    {"images are a folder", NULL, SET("data.images=."), 4, "."},
    {"labels as images", NULL, SET("data.images=labels"), 4, "labels"},
    {"images cut short", NULL, SET("data.images=images-short"), 4, "images-short"},
    {"images with a tail", NULL, SET("data.images=images-long"), 4, "images-long"},
    {"images cut in the header", NULL, SET("data.images=images-header"), 4,
     "images-header"},
    {"images empty", NULL, SET("data.images=empty"), 4, "empty"},
    {"one image less", NULL, SET("data.images=images-one-less"), 4, "39"},
    {"absurdly many images", NULL, SET("data.images=images-huge"), 4, "images-huge"},
    {"no image at all", NULL, SET("data.images=images-none"), 4, "images-none"},
    {"images of another type", NULL, SET("data.images=images-type"), 4, "images-type"},
    {"images without magic", NULL, SET("data.images=images-magic"), 4, "images-magic"},
    {"a damaged archive", NULL, SET("data.images=images-crc.gz"), 4, "images-crc.gz"},
    {"half an archive", NULL, SET("data.images=short.gz"), 4, "short.gz"},
    {"a label out of range",
     NULL,
     {"train", "@", "--set", "data.labels=labels-wild", "--set", "data.classes=4"},
     4,
     "200"},

    /* CIFAR files. */
    {"no such batch", CIFAR("gone.bin"), TRAIN, 4, "gone.bin"},
    {"a batch cut short", CIFAR("batch-short.bin"), TRAIN, 4, "batch-short.bin"},
    {"a wild label", CIFAR("batch-label.bin"), TRAIN, 4, "batch-label.bin"},
    {"a good batch and a bad one", CIFAR("\"batch.bin, batch-label.bin\""), TRAIN, 4,
     "batch-label.bin"},

    /* Names used by other frameworks. */
    {"PyTorch's learning rate", LEARN("lr = 1\n") LAYERS, CHECK, 2,
     "[solver] has no setting \"lr\"; did you mean learning_rate?"},
    {"a learning rate in [train]", NULL, SET("train.lr=1"), 2,
     "that is `learning_rate` in [solver]"},
    {"epochs in [solver]", NULL, SET("solver.num_epochs=1"), 2,
     "that is `epochs` in [train]"},
    {"Caffe's iterations", NULL, SET("solver.max_iter=1"), 2,
     "that is `iterations` in [train]"},
    {"a batch's size", NULL, SET("data.batch_size=1"), 2, "did you mean batch?"},
    {"a policy of PyTorch", NULL, SET("solver.policy=CosineAnnealingLR"), 2,
     "did you mean cosine?"},
    {"a filler of PyTorch", NULL, SET("ip.weight_filler=kaiming_normal"), 2,
     "did you mean msra?"},
    {"PyTorch's convolution", LEARN("") "[c]\ntype = Conv2d\nnum_output = 3\n" LAYERS,
     CHECK, 2,
     "there is no layer \"Conv2d\" for device cpu; did you mean convolution?"},
    {"PyTorch's inner product", LEARN("") "[fc]\ntype = linear\n" LAYERS, CHECK, 2,
     "did you mean inner_product?"},
    {"Keras' units", NULL, SET("ip.units=3"), 2, "did you mean num_output?"},
    {"PyTorch's optimizer", DATA "[optimizer]\ntype = sgd\n" LAYERS, CHECK, 2,
     "net.ini:10: [optimizer] is not a section of settings, and there is no layer type "
     "\"sgd\"; did you mean [solver]?"},
    {"a misspelt section", DATA "[sover]\ntype = sgd\n" LAYERS, CHECK, 2,
     "[sover] is not a section of settings, and there is no layer type \"sgd\"; did "
     "you mean "
     "[solver]?"},
    {"a section without a type", LEARN("") "[training]\nepochs = 3\n" LAYERS, CHECK, 2,
     "[training] is not a section of settings, nor a layer, since it has no `type`; "
     "did you mean [train]?"},
    {"a layer of no known type whose name is like a section's",
     LEARN("") "[dada]\ntype = cats\n" LAYERS, CHECK, 2,
     "[dada] there is no layer \"cats\" for device cpu"},
    {"set in PyTorch's section", NULL, SET("optimizer.rate=1"), 2,
     "no section [optimizer]; did you mean [solver]?"},
    {"Adam", NULL, {"train", "@", "--solver=Adam"}, 2, "did you mean adam?"},
    {"Adam as PyTorch has it", DATA "[optimizer]\ntype = adam\n" LAYERS, CHECK, 2,
     "did you mean [solver]?"},
    {"Lion", NULL, SET("solver.type=Lion"), 2,
     "there is no such solver; `dlcore plugin new solver NAME` starts one; there are: "
     "adadelta, adagrad, adam, adamw, lamb, lars, rmsprop, sgd"},
    {"a solver as a layer", LEARN("") "[layer]\ntype = sgd\n" LAYERS, CHECK, 2,
     "it is a solver: `type` in [solver]"},
    {"inspect Lion", NULL, {"plugin", "inspect", "lion"}, 3, "plugin new solver"},

    /* Checkpoints. */
    {"an empty checkpoint", NULL, WEIGHTS("empty"), 4, "empty"},
    {"a header beyond the end", NULL, WEIGHTS("long.safetensors"), 4, "long"},
    {"broken JSON", NULL, WEIGHTS("json.safetensors"), 4, "json.safetensors"},
    {"another net's weights", NULL, WEIGHTS("other.safetensors"), 4,
     "other.safetensors"},
    {"a shape and its bytes differ", NULL, WEIGHTS("shape.safetensors"), 4, "shape"},
    {"a tensor twice", NULL, WEIGHTS("twice.safetensors"), 4, "twice.safetensors"},
    {"data cut short", NULL, WEIGHTS("cut.safetensors"), 4, "cut.safetensors"},
    {"to resume from weights alone",
     NULL,
     {"train", "@", "--resume=other.safetensors"},
     4,
     "--weights"},
    {"an INI as a checkpoint", NULL, WEIGHTS("net.ini"), 4, "net.ini"},

    /* Plugins. */
    {"inspect what isn't there", NULL, {"plugin", "inspect", "nothing"}, 3, "nothing"},
    {"inspect what is no plugin",
     NULL,
     {"plugin", "inspect", "./net.bin"},
     3,
     "net.bin"},
    {"an unknown plugin command", NULL, {"plugin", "lst"}, 2, "list"},
};

const size_t fault_count = sizeof faults / sizeof *faults;
