/* Tests files that contain no topology or an invalid one: an error with file and line,
 * and the graph stays empty. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/scratch.h"
#include "support/test.h"
#include "topology/read.h"

#define SYSTEM(inside) "<system version=\"1\">\n" inside "\n</system>\n"
#define CPU(inside) SYSTEM("<cpu numaid=\"0\">\n" inside "\n</cpu>")
#define GPU(inside) \
    CPU("<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\">\n" inside \
        "\n</gpu></pci>")
#define TOPOLOGY(inside) \
    "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n" inside "\n</topology>\n"
#define MACHINE(inside) \
    TOPOLOGY( \
        "<object type=\"Machine\">\n<object type=\"PU\" os_index=\"0\"/>\n" inside \
        "\n</object>")

#define NVLINKS(count, objects, values) \
    "<topology version=\"2.0\">\n" \
    "<object type=\"Machine\">\n<object type=\"PU\" os_index=\"0\"/>\n</object>\n\n" \
    "<distances2 name=\"NVLinkBandwidth\" nbobjs=\"" count "\" indexing=\"gp\">\n" \
    "<indexes>" objects "</indexes>\n<u64values>" values "</u64values>\n" \
    "</distances2></topology>"

static const struct mistake {
    const char *text, *where, *what; /* where: follows the file's name */
} mistakes[] = {
    {"this is no XML", ":1:", "not well-formed XML"},
    {"\n\n<system>", ":3:", "no element found"},
    {"<system version=\"1\">\n<cpu numaid=\"0\">\n<pci busid=\"0000:", ":3:",
     "unclosed"},
    {"<a>\n</b>", ":2:", "mismatched tag"},
    {"<html/>", ":1:", "is not the root of a topology"},
    {"<!DOCTYPE s [\n<!ENTITY a \"aaaa\">\n<!ENTITY b \"&a;&a;&a;\">]><system>&b;</system>",
     ":2:", "entity definitions"},

    {SYSTEM(""), ":1:", "no <cpu>"},
    {"<system version=\"99\"><cpu/></system>", ":1:", "version=\"99\""},
    {SYSTEM("<cpu numaid=\"many\"/>"), ":2:", "numaid=\"many\""},
    {SYSTEM("<cpu numaid=\"1\"/>\n<cpu numaid=\"1\"/>"),
     ":3:", "NUMA node 1 appears twice"},
    {CPU("<pci class=\"0x030200\"/>"),
     ":3:", "busid=\"\" of <pci> is not a PCI address"},
    {CPU("<pci busid=\"here\" class=\"0x030200\"/>"), ":3:", "busid=\"here\""},
    {CPU("<pci busid=\"0000:01:00.0\" class=\"0x030200\"/>\n"
         "<pci busid=\"00000000:01:00.0\" class=\"0x030200\"/>"),
     ":4:", "0000:01:00.0 appears twice"},
    {CPU("<pci busid=\"0000:01:00.0\" class=\"gpu\"/>"), ":3:", "class=\"gpu\""},
    {CPU("<pci busid=\"0000:01:00.0\" link_speed=\"fast\"/>"),
     ":3:", "link_speed=\"fast\""},
    {CPU("<pci busid=\"0000:01:00.0\" link_speed=\"1e99 GT/s\"/>"),
     ":3:", "link_speed"},
    {CPU("<pci busid=\"0000:01:00.0\" link_width=\"-16\"/>"),
     ":3:", "link_width=\"-16\""},
    {CPU("<pci busid=\"0000:01:00.0\">\n<gpu dev=\"-1\"/></pci>"), ":4:", "dev=\"-1\""},
    {CPU("<nic>\n<net name=\"a\" speed=\"99999999999999999999\"/></nic>"),
     ":4:", "speed"},
    {CPU("<nic>\n<net name=\"a\" gdr=\"2\"/></nic>"), ":4:", "gdr=\"2\""},
    {GPU("<nvlink count=\"1\"/>"), ":4:", "target=\"\" of <nvlink>"},
    {GPU("<nvlink target=\"nowhere\" count=\"1\"/>"), ":4:", "target=\"nowhere\""},
    {GPU("<nvlink target=\"0000:02:00.0\" count=\"0\"/>"), ":4:", "count=\"0\""},
    {GPU("<nvlink target=\"0000:02:00.0\" count=\"2000000000\"/>"),
     ":4:", "from 1 to 256"},
    {GPU("<nvlink target=\"0000:02:00.0\" count=\"4 \"/>"), ":4:", "count=\"4 \""},

    {TOPOLOGY(""), ":2:", "there is no <object type=\"Machine\">"},
    {TOPOLOGY("<object type=\"Bridge\"/>"), ":3:", "there is no <object"},
    {TOPOLOGY("<object type=\"Machine\"/>\n<object type=\"Machine\"/>"),
     ":4:", "contains a second machine"},
    {TOPOLOGY("<object type=\"Machine\"/>"), ":3:", "the machine has no cores"},
    {"<topology version=\"9.0\"/>", ":1:", "version 9.0"},
    {"<topology version=\"\"/>", ":1:", "version "},
    {MACHINE("<object type=\"NUMANode\" os_index=\"first\"/>"),
     ":5:", "os_index=\"first\""},
    {MACHINE("<object type=\"Package\" os_index=\"4294967296\"/>"), ":5:", "os_index"},
    {MACHINE("<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\"/>"),
     ":5:", "pci_type"},
    {MACHINE("<object type=\"PCIDev\" pci_type=\"0302 [10de:1]\"/>"),
     ":5:", "no pci_busid"},
    {MACHINE("<object type=\"PCIDev\" pci_busid=\"1:2.0\" pci_type=\"0302 [10de:1]\" "
             "pci_link_speed=\"much\"/>"),
     ":5:", "pci_link_speed=\"much\""},
    {MACHINE(
         "<object type=\"PCIDev\" pci_busid=\"1:2.0\" pci_type=\"0302 [10de:1]\"/>\n"
         "<object type=\"PCIDev\" pci_busid=\"1:2.0\" pci_type=\"0302 [10de:1]\"/>"),
     ":6:", "appears twice"},
    {NVLINKS("2", "1 2", "0 1 1"), ":6:", "there are 2 objects and 3 values"},
    {NVLINKS("2", "1", "0 1 1 0"), ":6:", "there are 1 objects"},
    {NVLINKS("2", "1 2 3", "0 1 1 0"), ":7:", "more than 2 objects"},
    {NVLINKS("1", "1", "0 1"), ":8:", "more than 1 values"},
    {NVLINKS("2", "1 OSDev:x", "0 1 1 0"), ":7:", "'x' is not the number"},
    {NVLINKS("2", "1 2", "0 1 -1 0"), ":8:", "'-1 0' is not a bandwidth"},
    {NVLINKS("2", "1 2", "0 1 99999999999999999999 0"), ":8:", "is not a bandwidth"},
    {NVLINKS("0", "", ""), ":6:", "nbobjs=\"0\""},
    {NVLINKS("1000000", "1", "1"), ":6:", "nbobjs=\"1000000\""},
    {MACHINE("<object type=\"OSDev\" osdev_type=\"net\"/>"),
     ":5:", "osdev_type=\"net\""},
};

static void fails(const char *path, dlc_status wanted, const char *where,
                  const char *what) {
    dlc_topo topo = {0};
    char place[512];
    dlc_status status = dlc_topo_read(path, &topo);
    ck_assert_msg(status == wanted, "%s: status %d (%s)", path, status, dlc_detail());
    snprintf(place, sizeof place, "%s%s", path, where);
    ck_contains(dlc_detail(), place);
    ck_contains(dlc_detail(), what);
    ck_assert_uint_eq(topo.nodes + topo.links + topo.notes, 0);
    dlc_topo_free(&topo);
}

TEST_SETTINGS(.setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(mistakes_are_reported, COUNT(mistakes)) {
    const struct mistake *m = &mistakes[_i];
    const char *path = scratch_write("machine.xml", m->text, strlen(m->text));
    fails(path, DLC_ERR_DATA, m->where, m->what);
}

TEST(no_files) {
    fails(scratch_path("none.xml"), DLC_ERR_IO, ":", "No such file");
    fails(scratch_write("empty.xml", "", 0), DLC_ERR_DATA, ":", "empty");
    fails(scratch_path(""), DLC_ERR_DATA, ":", "not a regular file");
    fails("/dev/zero", DLC_ERR_DATA, ":", "not a regular file");
    const char *fifo = scratch_path("fifo");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    fails(fifo, DLC_ERR_DATA, ":", "not a regular file"); /* without blocking */
}

/* Writes a file that repeats a text, with each '#' replaced by another number. */
static const char *repeated(const char *begin, const char *middle, size_t count,
                            const char *end) {
    size_t room = strlen(begin) + count * (strlen(middle) + 8) + strlen(end) + 1;
    char *text = malloc(room), *at = text;
    ck_assert_ptr_nonnull(text);
    at += sprintf(at, "%s", begin);
    for (size_t i = 0; i < count; i++)
        for (const char *c = middle; *c; c++) {
            if (*c == '#')
                at += sprintf(at, "%zx", i);
            else
                *at++ = *c;
        }
    at += sprintf(at, "%s", end);
    const char *path = scratch_write("large.xml", text, (size_t)(at - text));
    free(text);
    return path;
}

TEST(sizes_are_limited) {
    fails(repeated("<system>", "<cpu>\n", 200, ""), DLC_ERR_DATA,
          ":128:", "nested too deeply");
    fails(repeated("<system>", "<cpu/>\n", 40000, "</system>"), DLC_ERR_DATA, ":",
          "too many elements");
}

/* The largest files that are allowed are read in reasonable time. */
TEST(large_files_are_read) {
    dlc_topo topo = {0};
    const char *path = repeated("<system><cpu numaid=\"0\">",
                                "<pci busid=\"#:00:00.0\" class=\"0x030200\"/>\n", 8000,
                                "</cpu></system>");
    ck_assert_msg(dlc_topo_read(path, &topo) == DLC_OK, "%s", dlc_detail());
    ck_assert_uint_eq(dlc_topo_count(&topo, -1, DLC_TOPO_GPU), 8000);
    dlc_topo_free(&topo);
}

/* Harmless oddities are noted, and the rest of the file is read. */
static const struct {
    const char *text, *note;
} oddities[] = {
    {CPU("<quantum/>"), "line 3: the unknown element <quantum> in <cpu>"},
    {SYSTEM("<cpu/>\n<rack/>"), "line 3: the unknown element <rack> in <system>"},
    {GPU("<nvlink target=\"0000:01:00.0\" count=\"12\"/>"), "to itself were ignored"},
    {GPU("<nvlink target=\"0000:09:00.0\" count=\"12\"/>"), "not a GPU of this file"},
    {CPU("<pci busid=\"0000:01:00.0\"/>"), "has no class"},
    {CPU("<pci busid=\"0000:01:00.0\"><gpu dev=\"0\"><nvlink target=\"0000:02:00.0\" "
         "count=\"4\"/></gpu></pci>\n"
         "<pci busid=\"0000:02:00.0\"><gpu dev=\"1\"><nvlink target=\"0000:01:00.0\" "
         "count=\"2\"/></gpu></pci>"),
     "lists 4 links to 0000:02:00.0, which lists 2 back"},
};

TEST_EACH(oddities_are_noted, COUNT(oddities)) {
    dlc_topo topo = {0};
    const char *text = oddities[_i].text;
    const char *path = scratch_write("machine.xml", text, strlen(text));
    ck_assert_msg(dlc_topo_read(path, &topo) == DLC_OK, "%s", dlc_detail());
    ck_assert_uint_eq(topo.notes, 1);
    ck_contains(topo.note[0], oddities[_i].note);
    dlc_topo_free(&topo);
}

/* Names may be shown on terminals: control characters are replaced. */
TEST(names_are_harmless) {
    dlc_topo topo = {0};
    const char *text = CPU("<nic><net name=\"&#9;e&#xe9;&#10;[2J\"/></nic>");
    const char *path = scratch_write("machine.xml", text, strlen(text));
    ck_assert_msg(dlc_topo_read(path, &topo) == DLC_OK, "%s", dlc_detail());
    int32_t nic = dlc_topo_nth(&topo, 0, DLC_TOPO_NIC, 0);
    ck_assert_int_ge(nic, 0);
    ck_assert_str_eq(topo.node[nic].name, "?e???[2J");
    dlc_topo_free(&topo);
}

/* NVLink bandwidths in MB/s: a link has 25,000, in the first generation 20,000. */
TEST(links_of_bandwidths) {
    static const struct {
        const char *values;
        int links;
    } cases[] = {{"0 25000 25000 0", 1},   {"0 50000 50000 0", 2},
                 {"0 20000 20000 0", 1},   {"0 80000 80000 0", 4},
                 {"0 100000 100000 0", 4}, {"0 300000 300000 0", 12},
                 {"0 40000 40000 0", 2},   {"0 7 7 0", 1}};
    char text[2000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_topo topo = {0};
        int length = snprintf(
            text, sizeof text,
            "<topology version=\"2.0\">\n<object type=\"Machine\">\n"
            "<object type=\"PU\" os_index=\"0\"/>\n"
            "<object type=\"Bridge\" gp_index=\"9\" bridge_type=\"0-1\">\n"
            "<object type=\"PCIDev\" gp_index=\"1\" pci_busid=\"0000:01:00.0\" "
            "pci_type=\"0302 [10de:20f1] [10de:145f] a1\"/>\n"
            "<object type=\"PCIDev\" gp_index=\"2\" pci_busid=\"0000:02:00.0\" "
            "pci_type=\"0302 [10de:20f1] [10de:145f] a1\"/>\n"
            "</object></object>\n"
            "<distances2 name=\"NVLinkBandwidth\" nbobjs=\"2\" indexing=\"gp\">\n"
            "<indexes>1 2</indexes><u64values>%s</u64values></distances2></topology>",
            cases[i].values);
        const char *path = scratch_write("links.xml", text, (size_t)length);
        ck_assert_msg(dlc_topo_read(path, &topo) == DLC_OK, "%s", dlc_detail());
        ck_assert_uint_eq(topo.links, 2);
        ck_assert_msg(topo.link[0].count == cases[i].links, "%s: %d links",
                      cases[i].values, topo.link[0].count);
        dlc_topo_free(&topo);
    }
}
