/* Matches the tensors of files with a net's parameters, lists what does not match, and
 * loads the rest. Nothing is loaded before all is checked, the bytes of the files
 * included. */
#include "checkpoint/weights.h"

#include <fnmatch.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/names.h"
#include "checkpoint/full_params.h"
#include "config/suggest.h"

/* ---- Rules "FROM=TO", in which each '*' stands for any text ------------------ */

enum { STARS_MOST = 4 };

/* The texts that the stars of FROM stand for. */
typedef struct matched {
    const char *text[STARS_MOST];
    size_t length[STARS_MOST];
} matched;

static size_t count_stars(const char *pattern, size_t length) {
    size_t stars = 0;
    for (size_t i = 0; i < length; i++)
        stars += pattern[i] == '*';
    return stars;
}

dlc_status dlc_weights_check_map(const char *map) {
    const char *equals = strchr(map, '=');
    if (!equals || equals == map || !equals[1] || strchr(equals + 1, '='))
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s' renames no tensor: write FROM=TO, such as "
                        "'fc.weight=ip1.weight' or 'backbone.*=*'",
                        map);
    size_t from = count_stars(map, (size_t)(equals - map));
    size_t to = count_stars(equals + 1, strlen(equals + 1));
    if (from > STARS_MOST)
        return dlc_fail(DLC_ERR_CONFIG, "'%s' has more than %d '*' before the '='", map,
                        STARS_MOST);
    if (to > from)
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s': each '*' after the '=' stands for what a '*' before it "
                        "has matched, and there are more after it than before it",
                        map);
    return DLC_OK;
}

/* Finds the first `length` bytes of `piece` in a text; NULL: they do not occur. */
static const char *find_piece(const char *text, const char *piece, size_t length) {
    size_t left = strlen(text);
    return left < length ? NULL : length ? memmem(text, left, piece, length) : text;
}

/* Matches the whole name. Every star but the last stands for the shortest text that
 * lets the rest match. */
static int match_pattern(const char *pattern, size_t length, const char *name,
                         matched *found) {
    const char *end = pattern + length;
    const char *star = memchr(pattern, '*', length);
    size_t piece = star ? (size_t)(star - pattern) : length;
    if (strncmp(name, pattern, piece) != 0)
        return 0;
    name += piece;
    for (size_t i = 0; star; i++) {
        pattern = star + 1;
        star = memchr(pattern, '*', (size_t)(end - pattern));
        piece = (size_t)((star ? star : end) - pattern);
        const char *next = name;
        if (star)
            next = find_piece(name, pattern, piece);
        else if (strlen(name) >= piece)
            next = name + strlen(name) - piece;
        if (!next || strlen(next) < piece || strncmp(next, pattern, piece) != 0)
            return 0;
        found->text[i] = name;
        found->length[i] = (size_t)(next - name);
        name = next + piece;
    }
    return !*name;
}

/* Renames *name, which is the caller's to dlc_free, if it matches FROM. Returns whether
 * it does; *name is NULL if memory ran out. */
static int rename_tensor(const char *map, char **name) {
    const char *equals = strchr(map, '=');
    matched found = {{NULL}, {0}};
    if (!match_pattern(map, (size_t)(equals - map), *name, &found))
        return 0;
    dlc_text renamed = {0};
    const char *to = equals + 1;
    for (size_t i = 0; *to; i++) {
        size_t piece = strcspn(to, "*");
        dlc_text_append(&renamed, to, piece);
        to += piece;
        if (!*to)
            break;
        dlc_text_append(&renamed, found.text[i], found.length[i]);
        to++;
    }
    char *made = dlc_text_status(&renamed) == DLC_OK
                     ? dlc_strdup(dlc_text_string(&renamed))
                     : NULL;
    dlc_text_free(&renamed);
    dlc_free(*name);
    *name = made;
    return 1;
}

/* ---- PyTorch's names ----------------------------------------------------------- */

/* Is it PyTorch's count of the batches that a batch norm has seen? No net needs it. */
static int is_batch_counter(const char *name) {
    static const char counter[] = ".num_batches_tracked";
    size_t length = strlen(name), own = strlen(counter);
    return length > own && strcmp(name + length - own, counter) == 0;
}

/* What `batch_norm` calls the parameter that PyTorch gives this name; a copy of other
 * names. Release it with dlc_free; NULL if memory runs out. */
static char *batch_norm_name(const char *name) {
    static const char *const names[][2] = {{".weight", ".scale"},
                                           {".running_mean", ".mean"},
                                           {".running_var", ".variance"}};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t own = strlen(names[i][0]);
        if (length > own && strcmp(name + length - own, names[i][0]) == 0)
            return dlc_format("%.*s%s", (int)(length - own), name, names[i][1]);
    }
    return dlc_strdup(name);
}

/* ---- Candidates ---------------------------------------------------------------- */

/* A tensor of a file that may be a parameter. */
typedef struct candidate {
    const dlc_safetensors *file;
    const dlc_safetensor *tensor;
    char *name; /* own; by which it is matched */
    int is_used, is_skipped;
    const struct candidate *again; /* another one of the same name; or NULL */
} candidate;

typedef struct matching {
    dlc_session *session;
    dlc_net *net;
    const dlc_weights *args;
    dlc_safetensors **file; /* own */
    candidate *list;        /* own */
    size_t count;
    dlc_names candidates; /* those that are not skipped: their places in `list` */
    dlc_names params;     /* of the net */
    char *has_params;     /* own; one per layer of the graph: are any of this net? */
    const candidate **of; /* own; one per parameter, NULL: it is not loaded */
    char *is_missing;     /* own; one per parameter */
    int *has_effect;      /* own; one per rule of `map`, then of `skip` */
    size_t missing, unexpected, unlike;
    int averages; /* take the average of the weights where a file has one */
    int has_averages;
} matching;

/* Is it what else a checkpoint has, such as the solver's slots ("momentum/...")? */
static int is_state(const dlc_safetensors *file, const char *name) {
    return dlc_safetensors_metadata(file, "dlcore.format") &&
           (strchr(name, '/') || strcmp(name, DLC_MODEL_STATE_TENSOR) == 0 ||
            strncmp(name, "dlcore.", strlen("dlcore.")) == 0);
}

/* The prefix of averages. */
#define AVERAGE DLC_EMA_NAME "/"

static int is_average(const char *name) {
    return strncmp(name, AVERAGE, strlen(AVERAGE)) == 0;
}

/* Collects the names of the parameters that have an average in the file. */
static dlc_status find_averages(const dlc_safetensors *file, dlc_names *averages) {
    for (size_t i = 0; i < dlc_safetensors_count(file); i++) {
        const char *name = dlc_safetensors_at(file, i)->name;
        if (is_average(name))
            DLC_TRY(dlc_names_add(averages, name + strlen(AVERAGE), i));
    }
    return DLC_OK;
}

/* The name of the parameter that a tensor may be; NULL: it is none. */
static const char *param_name(const matching *m, const dlc_safetensors *file,
                              const dlc_names *averages, const char *name) {
    if (m->averages && is_average(name))
        return name + strlen(AVERAGE);
    if (is_state(file, name) || dlc_names_find(averages, name) >= 0)
        return NULL;
    return name;
}

static int is_weight_skipped(const matching *m, const char *name) {
    for (size_t i = 0; i < m->args->skips; i++) {
        if (fnmatch(m->args->skip[i], name, 0) == 0) {
            m->has_effect[m->args->maps + i] = 1;
            return 1;
        }
    }
    return 0;
}

static int is_param(const matching *m, const char *name) {
    return dlc_names_find(&m->params, name) >= 0;
}

/* A batch norm may have PyTorch's names, if the net has none that are the same. */
static void take_batch_norm_name(const matching *m, candidate *c) {
    if (!c->name || is_param(m, c->name))
        return;
    char *name = batch_norm_name(c->name);
    if (name && !is_param(m, name)) {
        dlc_free(name);
        return;
    }
    dlc_free(c->name);
    c->name = name;
}

/* Of several candidates of a name the first is found, which knows of another. */
static dlc_status index_candidate(matching *m, const candidate *made) {
    ptrdiff_t first = dlc_names_find(&m->candidates, made->name);
    if (first < 0)
        return dlc_names_add(&m->candidates, made->name, (size_t)(made - m->list));
    if (!m->list[first].again)
        m->list[first].again = made;
    return DLC_OK;
}

static dlc_status add_candidate(matching *m, const dlc_safetensors *file,
                                const dlc_names *averages,
                                const dlc_safetensor *tensor) {
    const char *name = param_name(m, file, averages, tensor->name);
    if (!name)
        return DLC_OK;
    candidate *made = &m->list[m->count];
    *made = (candidate){.file = file, .tensor = tensor, .name = dlc_strdup(name)};
    m->count++;
    m->has_averages |= name != tensor->name;
    for (size_t i = 0; made->name && i < m->args->maps; i++)
        m->has_effect[i] |= rename_tensor(m->args->map[i], &made->name);
    take_batch_norm_name(m, made);
    if (!made->name)
        return DLC_ERR_NOMEM;
    made->is_skipped = is_weight_skipped(m, made->name) || is_batch_counter(made->name);
    return made->is_skipped ? DLC_OK : index_candidate(m, made);
}

static dlc_status add_candidates(matching *m, const dlc_safetensors *file) {
    dlc_names averages = {0};
    dlc_status status = m->averages ? find_averages(file, &averages) : DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < dlc_safetensors_count(file); i++)
        status = add_candidate(m, file, &averages, dlc_safetensors_at(file, i));
    dlc_names_free(&averages);
    return status;
}

static dlc_status open_files(matching *m) {
    size_t tensors = 0;
    for (size_t i = 0; i < m->args->files; i++) {
        DLC_TRY(dlc_safetensors_open_header(m->args->file[i], &m->file[i]));
        tensors += dlc_safetensors_count(m->file[i]);
    }
    m->list = dlc_alloc(tensors, sizeof *m->list);
    if (!m->list)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < m->args->files; i++)
        DLC_TRY(add_candidates(m, m->file[i]));
    if (!m->averages || m->has_averages)
        return DLC_OK;
    return dlc_fail(DLC_ERR_DATA,
                    "%s has no average of the weights, which [train] test_ema = yes "
                    "asks for; set it to no",
                    m->args->file[0]);
}

/* ---- Matching ------------------------------------------------------------------ */

/* So many mismatches of a kind are logged. */
enum { MOST = 20 };

/* Logs one mismatch, and frees the text; the first ones of each kind are enough. */
static void report_mismatch(size_t *kind, dlc_text *line) {
    if (++*kind <= MOST)
        dlc_error("  %s", dlc_text_string(line));
    dlc_text_free(line);
}

static dlc_status find_similar_tensor(const matching *m, const char *name,
                                      candidate **found) {
    ptrdiff_t place = dlc_names_find(&m->candidates, name);
    candidate *first = place < 0 ? NULL : &m->list[place];
    const candidate *again = first ? first->again : NULL;
    if (again)
        return dlc_fail(DLC_ERR_DATA,
                        "'%s' is there twice: as %s in %s and as %s in %s; leave one "
                        "of them out",
                        name, first->tensor->name, dlc_safetensors_path(first->file),
                        again->tensor->name, dlc_safetensors_path(again->file));
    *found = first;
    return DLC_OK;
}

/* The layer of the graph that a parameter is of, by its name; -1: none. */
static int32_t layer_of_tensor(const matching *m, const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dlc_graph_layer_named_part(m->session->setup->graph, name,
                                            (size_t)(dot - name))
               : -1;
}

/* Is it of a layer of the graph that is not in this net: of another phase, or beyond
 * its end? */
static int is_elsewhere(const matching *m, const char *name) {
    int32_t layer = layer_of_tensor(m, name);
    return layer >= 0 && !m->has_params[layer];
}

/* Suggests a tensor that no other parameter takes, for those that are logged. */
static void report_missing_tensors(matching *m, const char *name) {
    if (m->missing >= MOST) {
        m->missing++;
        return;
    }
    const char **names = dlc_alloc(m->count, sizeof *names);
    size_t count = 0;
    for (size_t i = 0; names && i < m->count; i++)
        if (!m->list[i].is_skipped && !m->list[i].is_used &&
            !is_elsewhere(m, m->list[i].name))
            names[count++] = m->list[i].name;
    const char *nearest = names ? dlc_nearest(name, names, count) : NULL;
    dlc_text line = {0};
    dlc_text_add(&line, "missing: %s", name);
    if (nearest)
        dlc_text_add(&line, ", the nearest name is %s", nearest);
    report_mismatch(&m->missing, &line);
    dlc_free(names);
}

/* Reports a type or a shape that does not fit. Returns whether there was one. */
static int report_unlike(matching *m, const candidate *c, const dlc_shape *needed) {
    int is_real = dlc_safetensor_is_real(c->tensor);
    if (is_real && dlc_shape_equal(&c->tensor->shape, needed))
        return 0;
    dlc_text line = {0};
    if (is_real) {
        dlc_text_add(&line, "unlike: %s has the shape ", c->name);
        dlc_safetensor_print_shape(&line, &c->tensor->shape);
        dlc_text_add(&line, ", but the net needs ");
        dlc_safetensor_print_shape(&line, needed);
    } else {
        dlc_text_add(&line, "unlike: %s is of type %s, which is not read as weights",
                     c->name, dlc_safetensor_type(c->tensor));
    }
    report_mismatch(&m->unlike, &line);
    return 1;
}

static dlc_status match_params(matching *m) {
    for (int32_t i = 0; i < dlc_full_param_count(m->session, m->net); i++) {
        dlc_full_param param = dlc_full_param_at(m->session, m->net, i);
        candidate *found = NULL;
        if (is_weight_skipped(m, param.name))
            continue;
        DLC_TRY(find_similar_tensor(m, param.name, &found));
        if (!found) {
            m->is_missing[i] = 1;
            continue;
        }
        found->is_used = 1;
        if (!report_unlike(m, found, param.shape))
            m->of[i] = found;
    }
    return DLC_OK;
}

static void report_unexpected(matching *m) {
    for (size_t i = 0; i < m->count; i++) {
        const candidate *c = &m->list[i];
        if (c->is_used || c->is_skipped || is_elsewhere(m, c->name))
            continue;
        dlc_text line = {0};
        dlc_text_add(&line, "unexpected: %s ", c->name);
        dlc_safetensor_print_shape(&line, &c->tensor->shape);
        dlc_text_add(&line, " in %s", dlc_safetensors_path(c->file));
        report_mismatch(&m->unexpected, &line);
    }
}

/* A rule without effect is most likely misspelt. */
static void warn_of_rules(const matching *m) {
    const dlc_weights *args = m->args;
    for (size_t i = 0; i < args->maps + args->skips; i++)
        if (!m->has_effect[i])
            dlc_warn("--weights-%s=%s applies to no tensor",
                     i < args->maps ? "map" : "skip",
                     i < args->maps ? args->map[i] : args->skip[i - args->maps]);
}

static dlc_status refuse_mismatches(const matching *m) {
    size_t all = m->missing + m->unexpected + m->unlike;
    return dlc_fail(
        DLC_ERR_DATA,
        "%s%s: %zu tensor%s not fit the net '%s' (%zu missing, %zu unexpected, %zu unlike), "
        "above; --weights-map=FROM=TO renames tensors, --weights-map=@FILE by the rules of a "
        "file (models/torchvision-*.map have torchvision's names), --weights-skip=PATTERN "
        "leaves them out",
        m->args->file[0], m->args->files > 1 ? " and others" : "", all,
        all > 1 ? "s do" : " does", m->session->setup->name, m->missing, m->unexpected,
        m->unlike);
}

static dlc_status match_all(matching *m) {
    DLC_TRY(match_params(m));
    for (int32_t i = 0; i < dlc_full_param_count(m->session, m->net); i++)
        if (m->is_missing[i])
            report_missing_tensors(m, dlc_full_param_at(m->session, m->net, i).name);
    report_unexpected(m);
    warn_of_rules(m);
    if (m->missing + m->unexpected + m->unlike)
        return refuse_mismatches(m);
    for (size_t i = 0; i < m->args->files; i++)
        DLC_TRY(dlc_safetensors_verify(m->file[i]));
    return DLC_OK;
}

/* ---- Loading ------------------------------------------------------------------- */

static dlc_status load_matched(const matching *m) {
    int32_t count = dlc_full_param_count(m->session, m->net), loaded = 0;
    for (int32_t i = 0; i < count; i++) {
        const candidate *from = m->of[i];
        float *values = NULL;
        if (!from)
            continue;
        DLC_TRY(dlc_safetensors_read_f32(from->file, from->tensor, &values));
        dlc_status status = dlc_full_param_import(m->session, m->net, i, -1, values);
        dlc_free(values);
        DLC_TRY(status);
        loaded++;
    }
    if (loaded < count)
        dlc_info(
            "%d of %d parameters were loaded; the others keep their initial values",
            (int)loaded, (int)count);
    return DLC_OK;
}

static dlc_status index_params(matching *m) {
    m->has_params = dlc_alloc((size_t)m->session->setup->graph->layers, 1);
    if (!m->has_params)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < dlc_full_param_count(m->session, m->net); i++) {
        int32_t layer = layer_of_tensor(m,
                                        dlc_full_param_at(m->session, m->net, i).name);
        if (layer >= 0)
            m->has_params[layer] = 1;
    }
    return dlc_full_params_index(m->session, m->net, &m->params);
}

static dlc_status open_matching(matching *m) {
    const dlc_weights *args = m->args;
    size_t params = (size_t)dlc_full_param_count(m->session, m->net);
    m->file = dlc_alloc(args->files, sizeof *m->file);
    m->of = dlc_alloc(params, sizeof *m->of);
    m->is_missing = dlc_alloc(params, 1);
    m->has_effect = dlc_alloc(args->maps + args->skips, sizeof *m->has_effect);
    if (!m->file || !m->of || !m->is_missing || !m->has_effect)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < args->maps; i++)
        DLC_TRY(dlc_weights_check_map(args->map[i]));
    DLC_TRY(index_params(m));
    return open_files(m);
}

static void close_matching(matching *m) {
    for (size_t i = 0; i < m->count; i++)
        dlc_free(m->list[i].name);
    for (size_t i = 0; m->file && i < m->args->files; i++)
        dlc_safetensors_close(m->file[i]);
    dlc_names_free(&m->candidates);
    dlc_names_free(&m->params);
    dlc_free(m->has_params);
    dlc_free(m->has_effect);
    dlc_free(m->is_missing);
    dlc_free(m->of);
    dlc_free(m->list);
    dlc_free(m->file);
}

/* Rank 0. */
static dlc_status import_weights(dlc_session *session, dlc_net *net,
                                 const dlc_weights *weights) {
    const dlc_settings *settings = session->setup->train_settings;
    matching m = {.session = session,
                  .net = net,
                  .args = weights,
                  .averages = net == session->test_net &&
                              dlc_settings_get_bool(settings, "test_ema")};
    dlc_status status = open_matching(&m);
    if (status == DLC_OK)
        status = match_all(&m);
    if (status == DLC_OK)
        status = load_matched(&m);
    close_matching(&m);
    return status;
}

dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const dlc_weights *weights) {
    dlc_status status = DLC_OK;
    if (session->rank == 0)
        status = import_weights(session, net, weights);
    status = dlc_full_params_end(session, net, status);
    DLC_TRY(dlc_broadcast_status(session->job, status));
    return dlc_full_params_share(session, net, 0);
}
