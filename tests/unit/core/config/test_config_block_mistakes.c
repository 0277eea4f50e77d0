/* Tests that every mistake with blocks is reported once, at the right line. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "fixture.h"
#include "support/test.h"

typedef struct bad_case {
    const char *text;
    const char *place;
    const char *phrase;
} bad_case;

#define B "[block b]\n[b.x]\nbias = yes\n"            /* lines 1 .. 3 */
#define P "[block p]\nparams = w\n[p.x]\nnote = $w\n" /* lines 1 .. 4 */
#define U "[u]\nblock = b\n"
#define UP "[u]\nblock = p\nw = 1\n"

/* Each has exactly one mistake. */
static const bad_case texts[] = {
    /* Headers */

    {"[block  b]\n[b.x]\n", "net.ini:1", "\" b\" has a character other than"},
    {"[block a b]\n", "net.ini:1", "\"a b\" has a character other than"},
    {"[block B]\n[b.x]\n" U, "net.ini:1", "write \"b\", not \"B\""},
    {"[blocks b]\n", "net.ini:1", "\"blocks b\" has a character other than"},
    {B "[block b]\n[b.y]\n" U, "net.ini:4", "section [block b] is repeated"},
    {"[block a.b]\n[a.b.x]\n[u]\nblock = a.b\n", "net.ini:1",
     "is not a valid name for a block"},
    {"[block a/b]\n[a/b.x]\n[u]\nblock = a/b\n", "net.ini:1",
     "is not a valid name for a block"},
    {"[block data]\n[data.x]\n[u]\nblock = data\n", "net.ini:1",
     "is not a valid name for a block"},
    {"[block repeat]\n[repeat.x]\n[u]\nblock = repeat\n", "net.ini:1",
     "is not a valid name for a block"},
    {"[block b]\n" U, "net.ini:1", "[block b] has no layers; [b.x] must follow"},

    {B U "[b.y]\n", "net.ini:6", "[b.y] the layers of [block b], line 1, must"},
    {"[b.y]\n" B U, "net.ini:1", "[b.y] the layers of [block b], line 2, must"},
    {B U "[b]\n", "net.ini:6", "[b] is the name of the block in line 1"},
    {B "[b]\nblock = b\n", "net.ini:4", "[b] is the name of the block in line 1"},
    {"[block b]\n[b.in]\n" U, "net.ini:2", "\"in\" means something else in a block"},
    {"[block b]\n[b.label]\n" U, "net.ini:2", "\"label\" means something else"},
    {"[block b]\n[b.data]\n" U, "net.ini:2", "\"data\" means something else"},
    /* Parameters */
    {"[block p]\nparams = w w\n[p.x]\n[u]\nblock = p\n", "net.ini:2",
     "\"w w\" is not a valid name for a parameter"},
    {"[block p]\nparams = w,\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"\" is not a valid name for a parameter"},
    {"[block p]\nparams = w, W\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"W\" is not a valid name for a parameter"},
    {"[block p]\nparams = w, w\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"w\" is declared twice"},
    {"[block p]\nparams = w\nw = 3\n[p.x]\nnote = $w\n" UP, "net.ini:3",
     "\"w\" is declared twice"},
    {"[block p]\nparams = w, input\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"input\" is a key that every use of a block has"},
    {"[block p]\nrepeat = 2\nw = 3\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"repeat\" is a key that every use of a block has"},
    {"[block p]\nparams = params, w\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"params\" is a key that every use of a block has"},
    {"[block p]\na-b = 1\nw = 3\n[p.x]\nnote = $w\n" UP, "net.ini:2",
     "\"a-b\" is not a valid name for a parameter"},
    {"[block p]\nw = 3\nv = 2$w\n[p.x]\nnote = $w$v\n" UP, "net.ini:3",
     "v: a default cannot refer to other parameters"},
    {"[block p]\nparams = w, v\n[p.x]\nnote = $w\n[u]\nblock = p\nw = 1\nv = 1\n",
     "net.ini:2", "[block p] no layer of the block uses \"v\""},
    {"[block p]\nparams = w\nv = 1\n[p.x]\nnote = $w\n" UP, "net.ini:3",
     "[block p] no layer of the block uses \"v\""},
    {"[block p]\nparams = w\n[p.x]\nnote = $w $vv\n" UP, "net.ini:4",
     "[p.x] note: block p has no parameter \"vv\"; it takes w"},
    {"[block p]\nparams = width\n[p.x]\nnote = $widht\n[u]\nblock = p\nwidth = 1\n",
     "net.ini:4", "no parameter \"widht\"; did you mean width?"},
    {"[block b]\n[b.x]\nnote = $w\n" U, "net.ini:3",
     "block b has no parameter \"w\"; it takes none"},
    {"[block p]\nparams = w\n[p.x]\nnote = $w$\n" UP, "net.ini:4",
     "note: '$' without the name of a parameter"},
    {"[block p]\nparams = w\n[p.x]\nnote = $w $ w\n" UP, "net.ini:4",
     "note: '$' without the name"},
    /* Uses */
    {P "[u]\nblock = p\n", "net.ini:5",
     "[u] needs w, a parameter of block p in line 1"},
    {"[block p]\nparams = width\n[p.x]\nnote = $width\n"
     "[u]\nblock = p\nwidth = 1\nwidht = 1\n",
     "net.ini:8", "block p has no parameter \"widht\"; did you mean width?"},
    {P UP "zzzzzz = 2\n", "net.ini:8", "no parameter \"zzzzzz\"; it takes w"},
    {B U "type = x\n", "net.ini:6", "no parameter \"type\"; it takes none"},
    {"[block conv]\n[conv.x]\n[u]\nblock = cnov\n[v]\nblock = conv\n", "net.ini:4",
     "no block is called \"cnov\"; did you mean conv?"},
    {"[u]\nblock = zzz\n", "net.ini:2", "[u] no block is called \"zzz\""},
    {U B, "net.ini:2",
     "block b is declared below, in line 3; it must be declared above"},
    {"[u]\nblock =\n", "net.ini:2", "block: no value"},
    {"[block b]\n[b.x]\nblock = b\n" U, "net.ini:3", "block b cannot use itself"},
    {"[block a]\n[a.x]\nblock = b\n" B "[u]\nblock = a\n[v]\nblock = b\n", "net.ini:3",
     "block b is declared below, in line 4"},
    {B "[block a]\n[a.x]\nblock = c\n[v]\nblock = a\n" U, "net.ini:6",
     "[a.x] no block is called \"c\""},
    {B "[block a]\n[a.x]\nblock = b\nw = 1\n[v]\nblock = a\n[w]\nblock = a\n",
     "net.ini:7", "[a.x] block b has no parameter \"w\""},
    {P "[block a]\n[a.x]\nblock = p\n[v]\nblock = a\n[w]\nblock = a\n", "net.ini:6",
     "[a.x] needs w, a parameter of block p"},
    {"[block p]\nparams = w\n[p.x]\nblock = $w\n[u]\nblock = p\nw = b\n", "net.ini:4",
     "no block is called \"$w\""},
    /* Copies */
    {B U "repeat = 0\n", "net.ini:6", "[u] repeat: 0 is out of range: 1 .. 1000"},
    {B U "repeat = 1001\n", "net.ini:6", "repeat: 1001 is out of range"},
    {B U "repeat = -1\n", "net.ini:6", "repeat: -1 is out of range"},
    {B U "repeat = 99999999999999999999\n", "net.ini:6", "out of range"},
    {B U "repeat = 2x\n", "net.ini:6", "repeat: \"2x\" is not a whole number"},
    {B U "repeat = 2\ninput = c, d\n", "net.ini:6", "there can be one input only"},
    {B "[block a]\n[a.x]\nblock = b\ninput = in\nrepeat = 2\n"
       "[u]\nblock = a\ninput = c, d\n[v]\nblock = a\ninput = c\n",
     "net.ini:8", "[a.x] repeat: a copy reads the one before"},
    {P "[block a]\nparams = n\n[a.x]\nblock = p\nw = 1\nrepeat = $n\n"
       "[u]\nblock = a\nn = x\n",
     "net.ini:10", "[a.x] repeat: \"x\" is not a whole number (as [u] of line 11)"},
    {"[u]\nrepeat = 2\n", "net.ini:2", "[u] has no setting \"repeat\""},
    {"[u]\nwidth = 2\n", "net.ini:2", "[u] has no setting \"width\""},
    /* Inputs */
    {"[block b]\n[b.conv]\n[b.y]\ninput = cnv\n" U, "net.ini:4",
     "[b.y] input = cnv: no layer of that name above in the block; `in` is what the "
     "block reads; did you mean conv?"},
    {"[block b]\n[b.x]\n[b.y]\ninput = y\n" U, "net.ini:4", "cannot be its own input"},
    {"[block b]\n[b.x]\ninput = y\n[b.y]\n" U, "net.ini:3", "input = y: no layer"},
    {"[c]\n[block b]\n[b.x]\ninput = c\n" U, "net.ini:4", "input = c: no layer"},
    {"[block b]\n[b.x]\ninput = in, , data\n" U, "net.ini:3", "input = : no layer"},
    {"[block b]\n[b.x]\ninput = in:1\n" U, "net.ini:3", "input = in:1: no layer"},
    {"[block b]\n[b.x]\nnote = 1\n[b.y]\ninput = x.z\n" U, "net.ini:5",
     "input = x.z: no layer"},
    {B "[block a]\n[a.c]\nblock = b\n[a.d]\ninput = c.y\n[u]\nblock = a\n", "net.ini:8",
     "input = c.y: no layer"},
    {B
     "[block a]\n[a.c]\nblock = b\nrepeat = 2\n[a.d]\ninput = c.1.y\n[u]\nblock = a\n",
     "net.ini:9", "input = c.1.y: no layer"},
    {B "[block a]\n[a.c]\nblock = b\nrepeat = 2\n[a.d]\ninput = c.1x\n[u]\nblock = a\n",
     "net.ini:9", "input = c.1x: no layer"},
    {"[block p]\nparams = w\n[p.x]\nnote = $w\ninput = $w\n" UP, "net.ini:5",
     "input = $w: no layer"},
    /* Names */
    {B U "[u.x]\n", "net.ini:6", "two layers get the name [u.x]"},
    {"[u.x]\n" B U, "net.ini:5", "[u] two layers get the name [u.x]"},
    {B U "repeat = 2\n[u.1]\n", "net.ini:7", "[u.1] two layers get the name [u.1]"},
    {"[u.2]\n" B U "repeat = 2\n", "net.ini:5", "two layers get the name [u.2]"},
    {B "[block a]\n[a.c]\nblock = b\n[a.c.x]\n[u]\nblock = a\n", "net.ini:8",
     "[u] two layers get the name [u.c.x]"},
    /* What the layers themselves don't take */
    {"[block b]\n[b.x]\nbais = 1\n" U "[v]\nblock = b\n", "net.ini:3",
     "[b.x] has no setting \"bais\"; did you mean bias? (as [u.x] of line 4 and 1 "
     "more)"},
    {"[block b]\n[b.x]\nnum_output = 1x\n" U, "net.ini:3",
     "[b.x] num_output: \"1x\" is not a whole number (as [u.x] of line 4)"},
    {"[block p]\nparams = w\n[p.x]\nnum_output = $w\n" UP
     "[v]\nblock = p\nw = none\nrepeat = 3\n",
     "net.ini:4", "\"none\" is not a whole number (as [v.1.x] of line 8 and 2 more)"},
    {"[block b]\n[b.x]\nnum_output =\n" U, "net.ini:3", "num_output: no value"},
    {"[block b]\n[b.x]\nhello\n" U, "net.ini:3", "no '=' in \"hello\""},
    {P "[u]\nblock = p\nw =\n", "net.ini:7", "w: no value"},
    {P "[u]\nblock = p\nhello\n", "net.ini:7", "no '=' in \"hello\""},
};

TEST_SETTINGS(.setup = folder_setup, .teardown = folder_teardown);

TEST_EACH(each_mistake_is_reported_once, COUNT(texts)) {
    const bad_case *bad = &texts[_i];
    dlc_problems problems = {0};
    write_text("net.ini", bad->text);
    ck_assert_msg(check_net(NULL, 0, &problems) == DLC_OK, "%s", dlc_detail());
    check_report(&problems, bad->text, bad->place, bad->phrase);
}

static const struct {
    const char *set, *place, *phrase;
} sets[] = {
    {"u.v=1", "--set", "[u] block p has no parameter \"v\"; it takes w"},
    {"u.repeat=0", "--set", "[u] repeat: 0 is out of range"},
    {"u.block=q", "--set", "[u] no block is called \"q\"\n"},
    {"u.w=x", "net.ini:4", "\"x\" is not a whole number (as [u.x] of line 5)"},
    {"p.x.ratio=7", "--set",
     "[p.x] ratio: 7 is out of range: 0 .. 1 (as [u.x] of line 5"},
    {"u.x.ratio=7", "--set", "[u.x] ratio: 7 is out of range: 0 .. 1\n"},
    {"u.x.num_output=y", "--set", "[u.x] num_output: \"y\" is not a whole number\n"},
    {"u.x.rati=7", "--set", "[u.x] has no setting \"rati\"; did you mean ratio?\n"},
    {"u.y.ratio=7", "--set", "no section [u.y]; did you mean [u.x]?"},
    {"block p.params=w", "--set", "\"block p\" has a character other than"},
};

TEST_EACH(each_mistake_of_set_is_reported_once, COUNT(sets)) {
    dlc_problems problems = {0};
    write_text("net.ini", "[block p]\nparams = w\n[p.x]\nnum_output = $w\n" UP);
    const char *const one[] = {sets[_i].set};
    ck_assert_int_eq(check_net(one, 1, &problems), DLC_OK);
    check_report(&problems, sets[_i].set, sets[_i].place, sets[_i].phrase);
}

TEST(values_that_grow_too_long_are_reported) {
    char text[4000];
    dlc_problems problems = {0};
    /* 100 bytes, ten times, and a little more. */
    snprintf(text, sizeof text,
             "[block p]\nparams = w\n[p.x]\nnote = $w$w$w$w$w$w$w$w$w$w-\n"
             "[u]\nblock = p\nw = %0100d\n",
             7);
    write_text("net.ini", text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, "long value", "net.ini:4",
                 "[p.x] note: more than 1000 bytes once the block is expanded (as [u");
    snprintf(text, sizeof text, B "[%0100d]\nblock = b\n[%0119d]\nblock = b\n", 0, 0);
    write_text("net.ini", text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, "long name", "net.ini:6",
                 "a layer of it gets a name of more than 120 characters");
}

/* The input doubles with every block. */
TEST(inputs_that_grow_too_long_are_reported) {
    dlc_problems problems = {0};
    dlc_text text = {0};
    char lines[8192];
    dlc_text_add(&text, "[block b0]\n[b0.x]\ninput = in\n");
    for (int i = 1; i < 40; i++)
        dlc_text_add(&text, "[block b%d]\n[b%d.x]\nblock = b%d\ninput = in, in\n", i, i,
                     i - 1);
    dlc_text_add(&text, "[u]\nblock = b39\ninput = data\n");
    write_text("net.ini", dlc_text_string(&text));
    dlc_text_free(&text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_msg(
        strstr(lines, "input: more than 1000 bytes once the block is expanded"), "%s",
        lines);
}

/* One mistake in each line with a comment that says so. */
TEST(all_mistakes_in_one_run) {
    char lines[8192];
    dlc_problems problems = {0};
    write_text("net.ini", "[block a]\n"          /* 1 */
                          "params = w, in put\n" /* 2: no name */
                          "v = $w\n"             /* 3: refers, and is not used */
                          "[a.x]\n"              /* 4 */
                          "num_output = $w\n"    /* 5: not in v */
                          "ratio = 7\n"          /* 6: out of range */
                          "[a.y]\n"              /* 7 */
                          "input = z\n"          /* 8: no such layer */
                          "note = $v\n"          /* 9 */
                          "[u]\n"                /* 10 */
                          "block = a\n"          /* 11 */
                          "w = 4\n"              /* 12 */
                          "[v]\n"                /* 13 */
                          "block = a\n"          /* 14 */
                          "w = x\n"              /* 15 */
                          "x = 1\n"              /* 16: no parameter */
                          "[w]\n"                /* 17 */
                          "block = z\n");        /* 18: no block */
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "7 mistakes in net.ini");
    static const char *const places[] = {
        ":2: ", ":3: ", ":5: ", ":6: ", ":8: ", ":16: ", ":18: "};
    const char *at = lines;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        at = strstr(at, places[i]);
        ck_assert_msg(at != NULL, "%s not in its place in\n%s", places[i], lines);
    }
}
