/* See checkpoint.h. */
#include "train/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint/safetensors.h"
#include "train/evaluate.h"
#include "train/loss_scale.h"

#define FORMAT "1"

static const char *folder_of(const dlc_session *session) {
    const char *folder = dlc_settings_get_string(session->setup->run, "snapshot_dir");
    return folder ? folder : "snapshots";
}

/* ---- Parameters -------------------------------------------------------------- */

/* One as it is in a file: whole, whoever has its pieces. */
typedef struct whole_param {
    const char *name;
    const dlc_shape *shape;
    int is_buffer;
} whole_param;

/* Where there are pieces, of the nets that are trained. */
static dlc_pieces *pieces_of(const dlc_session *session, const dlc_net *net) {
    return net == session->net ? session->pieces : NULL;
}

static int32_t count_params(const dlc_session *session, const dlc_net *net) {
    const dlc_pieces *pieces = pieces_of(session, net);
    return pieces ? dlc_pieces_count(pieces) : dlc_net_params(net);
}

static whole_param param_at(const dlc_session *session, const dlc_net *net, int32_t i) {
    const dlc_pieces *pieces = pieces_of(session, net);
    if (pieces) {
        const dlc_piece *piece = dlc_pieces_at(pieces, i);
        return (whole_param){piece->name, &piece->shape, piece->is_buffer};
    }
    /* First layers first reads better than the arena's order. */
    const dlc_net_param *param = dlc_net_param_at(net, dlc_net_params(net) - 1 - i);
    return (whole_param){param->name, &param->shape, param->is_buffer};
}

/* Its values (slot -1), or those of a slot, where every rank has all. */
static float *arena_of(const dlc_session *session, dlc_net *net, int32_t param,
                       int32_t slot) {
    return slot < 0 ? dlc_net_param_arena(net, param) : session->slot[slot].base;
}

static dlc_status export_whole(dlc_session *session, int32_t i, int32_t slot,
                               float *plain) {
    dlc_net *net = session->net;
    int32_t param = dlc_net_params(net) - 1 - i;
    if (session->pieces)
        return dlc_pieces_get(session->pieces, i, slot, plain);
    return dlc_net_param_export(net, param, arena_of(session, net, param, slot), plain);
}

static dlc_status import_whole(dlc_session *session, dlc_net *net, int32_t i,
                               int32_t slot, const float *plain) {
    int32_t param = dlc_net_params(net) - 1 - i;
    if (pieces_of(session, net))
        return dlc_pieces_put(session->pieces, i, slot, plain);
    return dlc_net_param_import(net, param, plain, arena_of(session, net, param, slot));
}

/* Behind what rank 0 alone does: it lets the others go, who until then hand it their
 * pieces, or take them. */
static dlc_status end_pieces(dlc_session *session, const dlc_net *net,
                             dlc_status status) {
    dlc_pieces *pieces = pieces_of(session, net);
    if (!pieces)
        return status;
    if (session->rank != 0)
        return dlc_pieces_serve(pieces);
    char *cause = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    dlc_status ended = dlc_pieces_end(pieces);
    if (cause)
        (void)dlc_fail(status, "%s", cause);
    dlc_free(cause);
    return status == DLC_OK ? ended : status;
}

/* ---- Saving ------------------------------------------------------------------ */

/* A parameter; its plain copy is made when it is written. */
typedef struct param_copy {
    dlc_session *session;
    int32_t index, slot;
    float *plain; /* room for the largest */
} param_copy;

typedef struct tensor_list {
    dlc_safetensor *tensor;
    char **name;
    param_copy *copy;
    size_t count;
    void *blob; /* own; of the solver */
    float *plain;
    size_t plain_count;
    int borrowed; /* `plain` is the gradients' */
} tensor_list;

/* The gradients have been used: their arena has room for plain copies. Where the
 * processor cannot write there, memory is taken. */
static dlc_status take_plain(tensor_list *list, dlc_session *session) {
    float *gradients = dlc_net_arenas(session->net)->gradients;
    for (int32_t i = 0; i < count_params(session, session->net); i++) {
        whole_param param = param_at(session, session->net, i);
        size_t count = (size_t)dlc_shape_count(param.shape);
        if (count > list->plain_count)
            list->plain_count = count;
    }
    list->borrowed = gradients && session->setup->device->caps & DLC_DEVICE_HOST &&
                     list->plain_count <= dlc_net_arenas(session->net)->count;
    list->plain = list->borrowed ? gradients
                                 : dlc_alloc(list->plain_count, sizeof(float));
    return list->plain ? DLC_OK : DLC_ERR_NOMEM;
}

/* Padding between gradients is zero at all times. */
static dlc_status give_back_plain(tensor_list *list, const dlc_session *session) {
    if (!list->borrowed) {
        dlc_free(list->plain);
        return DLC_OK;
    }
    return session->device_ops->fill(session->device, NULL, list->plain, 0,
                                     list->plain_count * sizeof(float));
}

static void list_free(tensor_list *list) {
    for (size_t i = 0; i < list->count; i++)
        dlc_free(list->name[i]);
    dlc_free(list->blob);
    dlc_free(list->name);
    dlc_free(list->copy);
    dlc_free(list->tensor);
}

static dlc_status make_plain(void *context, const void **data) {
    const param_copy *copy = context;
    DLC_TRY(export_whole(copy->session, copy->index, copy->slot, copy->plain));
    *data = copy->plain;
    return DLC_OK;
}

static dlc_status list_add_param(tensor_list *list, dlc_session *session, int32_t i,
                                 const char *prefix, int32_t slot) {
    whole_param param = param_at(session, session->net, i);
    char *name = dlc_format("%s%s", prefix, param.name);
    if (!name)
        return DLC_ERR_NOMEM;
    size_t at = list->count++;
    list->name[at] = name;
    list->copy[at] = (param_copy){session, i, slot, list->plain};
    list->tensor[at] = (dlc_safetensor){.name = name,
                                        .dtype = DLC_F32,
                                        .shape = *param.shape,
                                        .get = make_plain,
                                        .context = &list->copy[at]};
    return DLC_OK;
}

static int slot_is_saved(const dlc_session *session, int32_t slot) {
    return (session->needs.slot_saved >> slot & 1) != 0;
}

static dlc_status list_add_slot(tensor_list *list, dlc_session *session, int32_t slot) {
    char prefix[128];
    snprintf(prefix, sizeof prefix, "%s/", session->needs.slot_name[slot]);
    for (int32_t i = 0; i < count_params(session, session->net); i++)
        if (!param_at(session, session->net, i).is_buffer)
            DLC_TRY(list_add_param(list, session, i, prefix, slot));
    return DLC_OK;
}

static dlc_status list_add_solver(tensor_list *list, const dlc_session *session) {
    const dlc_solver_ops *ops = session->solver_ops;
    size_t bytes = 0;
    if (!DLC_CAN(ops, save))
        return DLC_OK;
    DLC_TRY(ops->save(session->solver, NULL, &bytes));
    list->blob = dlc_alloc(bytes, 1);
    if (!list->blob)
        return DLC_ERR_NOMEM;
    DLC_TRY(ops->save(session->solver, list->blob, &bytes));
    size_t at = list->count;
    list->name[at] = dlc_strdup("solver");
    if (!list->name[at])
        return DLC_ERR_NOMEM;
    list->count++;
    list->tensor[at] = (dlc_safetensor){.name = list->name[at],
                                        .dtype = DLC_U8,
                                        .shape = {.rank = 1, .dims = {(int64_t)bytes}},
                                        .data = list->blob};
    return DLC_OK;
}

static dlc_status list_fill(tensor_list *list, dlc_session *session) {
    size_t params = (size_t)count_params(session, session->net);
    size_t room = params * (size_t)(1 + session->needs.slots) + 1;
    list->tensor = dlc_alloc(room, sizeof *list->tensor);
    list->name = dlc_alloc(room, sizeof *list->name);
    list->copy = dlc_alloc(room, sizeof *list->copy);
    if (!list->tensor || !list->name || !list->copy)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < (int32_t)params; i++)
        DLC_TRY(list_add_param(list, session, i, "", -1));
    for (int32_t slot = 0; slot < session->needs.slots; slot++)
        if (slot_is_saved(session, slot))
            DLC_TRY(list_add_slot(list, session, slot));
    return list_add_solver(list, session);
}

/* "" where there is none. */
static dlc_status print_loss_scale(const dlc_session *session,
                                   char text[DLC_LOSS_SCALE_TEXT]) {
    dlc_loss_scale value;
    text[0] = '\0';
    if (!session->loss_scale.base)
        return DLC_OK;
    DLC_TRY(dlc_loss_scale_read(session->device_ops, session->device,
                                &session->loss_scale, &value));
    dlc_loss_scale_print(&value, text);
    return DLC_OK;
}

static dlc_status write_file(dlc_session *session, const char *path) {
    char iteration[32], seed[32], ranks[32], batch[32], scale[DLC_LOSS_SCALE_TEXT];
    DLC_TRY(print_loss_scale(session, scale));
    snprintf(iteration, sizeof iteration, "%" PRId64, session->iteration);
    snprintf(seed, sizeof seed, "%" PRIu64, session->setup->seed);
    snprintf(ranks, sizeof ranks, "%" PRId32, session->ranks);
    snprintf(batch, sizeof batch, "%" PRId64, dlc_session_samples(session));
    const dlc_safetensors_pair metadata[] = {
        {"dlcore.format", FORMAT},
        {"dlcore.version", DLC_VERSION},
        {"dlcore.net", session->setup->name},
        {"dlcore.iteration", iteration},
        {"dlcore.seed", seed},
        {"dlcore.ranks", ranks},
        {"dlcore.effective_batch", batch},
        {"dlcore.solver", session->setup->solver->name},
        {"dlcore.loss_scale", scale}, /* the last, which may be left out */
    };
    size_t pairs = sizeof metadata / sizeof *metadata - (scale[0] == '\0');
    tensor_list list = {0};
    DLC_TRY(take_plain(&list, session));
    dlc_status status = list_fill(&list, session);
    if (status == DLC_OK)
        status = dlc_safetensors_write(path, list.tensor, list.count, metadata, pairs);
    list_free(&list);
    dlc_status given = give_back_plain(&list, session);
    return status == DLC_OK ? given : status;
}

static dlc_status make_folder(const char *folder) {
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return DLC_OK;
    return dlc_fail(DLC_ERR_IO, "folder for checkpoints %s: %s", folder,
                    strerror(errno));
}

static dlc_status save_as_rank_0(dlc_session *session, char **path) {
    const char *folder = folder_of(session);
    DLC_TRY(make_folder(folder));
    char *made = dlc_format("%s/%s-%08" PRId64 ".safetensors", folder,
                            session->setup->name, session->iteration);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status status = write_file(session, made);
    if (status == DLC_OK && path) {
        *path = made;
        return DLC_OK;
    }
    dlc_free(made);
    return status;
}

/* Rank 0's status and sentence for everybody. */
static dlc_status share_status(dlc_session *session, dlc_status status) {
    struct {
        dlc_status status;
        char detail[512];
    } news = {.status = status};
    if (session->rank != 0) /* its own failure ends the job */
        DLC_TRY(status);
    if (session->rank == 0 && status != DLC_OK)
        snprintf(news.detail, sizeof news.detail, "%s", dlc_detail());
    DLC_TRY(dlc_job_broadcast(session->job, 0, &news, sizeof news));
    return news.status == DLC_OK ? DLC_OK : dlc_fail(news.status, "%s", news.detail);
}

/* Where ranks update shards, each has its shard of the solver's state. */
static dlc_status gather_slots(dlc_session *session) {
    for (int32_t slot = 0; slot < session->needs.slots; slot++)
        if (slot_is_saved(session, slot))
            DLC_TRY(dlc_exchanger_gather(session->exchanger, session->slot[slot].base));
    return DLC_OK;
}

dlc_status dlc_checkpoint_save(dlc_session *session, char **path) {
    if (session->net)
        DLC_TRY(dlc_average_buffers(session));
    if (session->exchanger)
        DLC_TRY(gather_slots(session));
    dlc_status status = DLC_OK;
    if (session->rank == 0)
        status = save_as_rank_0(session, path);
    status = end_pieces(session, session->net, status);
    return share_status(session, status);
}

/* ---- Reading ----------------------------------------------------------------- */

static dlc_status import_param(dlc_session *session, dlc_net *net, int32_t i,
                               const dlc_safetensors *file, const char *prefix,
                               int32_t slot) {
    whole_param param = param_at(session, net, i);
    const void *data = NULL;
    char *name = dlc_format("%s%s", prefix, param.name);
    if (!name)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_safetensors_find(file, name, DLC_F32, param.shape, &data);
    dlc_free(name);
    return status == DLC_OK ? import_whole(session, net, i, slot, data) : status;
}

static dlc_status import_weights(dlc_session *session, dlc_net *net,
                                 const dlc_safetensors *file) {
    for (int32_t i = 0; i < count_params(session, net); i++)
        DLC_TRY(import_param(session, net, i, file, "", -1));
    return DLC_OK;
}

static dlc_status import_solver(dlc_session *session, const dlc_safetensors *file) {
    for (int32_t slot = 0; slot < session->needs.slots; slot++) {
        char prefix[128];
        snprintf(prefix, sizeof prefix, "%s/", session->needs.slot_name[slot]);
        for (int32_t i = 0;
             slot_is_saved(session, slot) && i < count_params(session, session->net);
             i++)
            if (!param_at(session, session->net, i).is_buffer)
                DLC_TRY(import_param(session, session->net, i, file, prefix, slot));
    }
    return DLC_OK;
}

/* Until the solver is started; the last file that is tried counts. */
static dlc_status keep_solver_bytes(dlc_session *session, const void *bytes,
                                    size_t count) {
    dlc_free(session->saved);
    session->saved_bytes = 0;
    session->saved = dlc_alloc(count, 1);
    if (!session->saved)
        return DLC_ERR_NOMEM;
    if (bytes)
        memcpy(session->saved, bytes, count);
    session->saved_bytes = count;
    return DLC_OK;
}

static dlc_status import_solver_bytes(dlc_session *session,
                                      const dlc_safetensors *file) {
    const dlc_solver_ops *ops = session->solver_ops;
    if (!DLC_CAN(ops, load))
        return DLC_OK;
    const dlc_safetensor *solver = dlc_safetensors_get(file, "solver");
    if (!solver)
        return dlc_fail(DLC_ERR_DATA, "%s: it has no solver state",
                        dlc_safetensors_path(file));
    return keep_solver_bytes(session, solver->data,
                             (size_t)dlc_shape_count(&solver->shape));
}

/* A run in another precision before had none. */
static dlc_status import_loss_scale(dlc_session *session, const dlc_safetensors *file) {
    const char *text = dlc_safetensors_metadata(file, "dlcore.loss_scale");
    dlc_loss_scale value;
    if (!session->loss_scale.base || !text)
        return DLC_OK;
    if (dlc_loss_scale_parse(text, &value) != DLC_OK)
        return dlc_fail(DLC_ERR_DATA, "%s: dlcore.loss_scale: %s",
                        dlc_safetensors_path(file), dlc_detail());
    return dlc_loss_scale_write(session->device_ops, session->device,
                                &session->loss_scale, &value);
}

/* A whole number of the metadata. */
static dlc_status metadata_number(const dlc_safetensors *file, const char *key,
                                  int64_t *number) {
    const char *text = dlc_safetensors_metadata(file, key);
    char *end = NULL;
    errno = 0;
    long long value = text ? strtoll(text, &end, 10) : -1;
    if (!text || end == text || *end || errno || value < 0)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: no checkpoint of a run (%s is missing or no "
                        "number); --weights takes weights alone",
                        dlc_safetensors_path(file), key);
    *number = value;
    return DLC_OK;
}

/* Can this run's solver do with the tensor what that of the file did? */
static int has_use(const dlc_session *session, const char *name) {
    const char *slash = strchr(name, '/');
    if (strcmp(name, "solver") == 0)
        return DLC_CAN(session->solver_ops, load);
    for (int32_t i = 0; i < count_params(session, session->net); i++)
        if (strcmp(param_at(session, session->net, i).name, name) == 0)
            return 1;
    for (int32_t slot = 0; slash && slot < session->needs.slots; slot++) {
        const char *mine = session->needs.slot_name[slot];
        if (slot_is_saved(session, slot) && strlen(mine) == (size_t)(slash - name) &&
            strncmp(mine, name, strlen(mine)) == 0)
            return 1;
    }
    return 0;
}

/* Solvers may have the same state. What is missing of it, or of another shape, is told
 * where it is read. */
static dlc_status check_solver(const dlc_session *session,
                               const dlc_safetensors *file) {
    const char *solver = dlc_safetensors_metadata(file, "dlcore.solver");
    const char *mine = session->setup->solver->name;
    if (solver && strcmp(solver, mine) == 0)
        return DLC_OK;
    for (size_t i = 0; i < dlc_safetensors_count(file); i++) {
        const char *name = dlc_safetensors_at(file, i)->name;
        if (!has_use(session, name))
            return dlc_fail(
                DLC_ERR_CONFIG,
                "%s was written by solver '%s', and this run has '%s', which has no use "
                "for its %s; give --weights to start anew from its weights",
                dlc_safetensors_path(file), solver ? solver : "?", mine, name);
    }
    dlc_info("%s was written by solver '%s'; '%s' goes on from its state",
             dlc_safetensors_path(file), solver ? solver : "?", mine);
    return DLC_OK;
}

static dlc_status check_same_run(dlc_session *session, const dlc_safetensors *file) {
    int64_t seed = 0, batch = 0;
    DLC_TRY(metadata_number(file, "dlcore.seed", &seed));
    DLC_TRY(metadata_number(file, "dlcore.effective_batch", &batch));
    if ((uint64_t)seed != session->setup->seed)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s was written with seed %" PRId64 ", this run has %" PRIu64
                        "; give --seed %" PRId64
                        ", or --weights to start anew from its weights",
                        dlc_safetensors_path(file), seed, session->setup->seed, seed);
    DLC_TRY(check_solver(session, file));
    if (batch != dlc_session_samples(session))
        dlc_warn("%s was written with an effective batch of %" PRId64
                 ", this run has %" PRId64 ": it will not repeat the run",
                 dlc_safetensors_path(file), batch, dlc_session_samples(session));
    return DLC_OK;
}

static dlc_status resume_from(dlc_session *session, const dlc_safetensors *file) {
    int64_t iteration = 0;
    DLC_TRY(metadata_number(file, "dlcore.iteration", &iteration));
    DLC_TRY(check_same_run(session, file));
    DLC_TRY(import_weights(session, session->net, file));
    DLC_TRY(import_solver(session, file));
    DLC_TRY(import_solver_bytes(session, file));
    DLC_TRY(import_loss_scale(session, file));
    session->iteration = iteration;
    dlc_info("resumed from %s at iteration %" PRId64, dlc_safetensors_path(file),
             iteration);
    return DLC_OK;
}

/* The iteration in "<net>-<iteration>.safetensors", -1 for other names. */
static int64_t iteration_of_name(const dlc_session *session, const char *name) {
    size_t length = strlen(session->setup->name);
    if (strncmp(name, session->setup->name, length) != 0 || name[length] != '-' ||
        name[length + 1] < '0' || name[length + 1] > '9')
        return -1;
    char *end;
    long long iteration = strtoll(name + length + 1, &end, 10);
    return strcmp(end, ".safetensors") == 0 ? iteration : -1;
}

/* The newest checkpoint older than `before`; *path is NULL where there is none. */
static dlc_status newest_checkpoint(const dlc_session *session, int64_t before,
                                    char **path, int64_t *iteration) {
    const char *folder = folder_of(session);
    int64_t best = -1;
    DIR *dir = opendir(folder);
    char *name = NULL;
    if (dir) {
        for (struct dirent *entry; (entry = readdir(dir));) {
            int64_t found = iteration_of_name(session, entry->d_name);
            if (found <= best || found >= before)
                continue;
            dlc_free(name);
            name = dlc_strdup(entry->d_name);
            best = name ? found : best;
        }
        closedir(dir);
    }
    *path = name ? dlc_format("%s/%s", folder, name) : NULL;
    int failed = name && !*path;
    dlc_free(name);
    *iteration = best;
    return failed ? DLC_ERR_NOMEM : DLC_OK;
}

static dlc_status resume_path(dlc_session *session, const char *path) {
    dlc_safetensors *file = NULL;
    DLC_TRY(dlc_safetensors_open(path, &file));
    dlc_status status = resume_from(session, file);
    dlc_safetensors_close(file);
    return status;
}

/* A damaged checkpoint is passed over for the one before it. */
static dlc_status resume_newest(dlc_session *session) {
    int64_t before = INT64_MAX;
    for (;;) {
        char *path = NULL;
        DLC_TRY(newest_checkpoint(session, before, &path, &before));
        if (!path) {
            dlc_info("no checkpoint of '%s' in %s: starting anew", session->setup->name,
                     folder_of(session));
            return DLC_OK;
        }
        dlc_status status = resume_path(session, path);
        dlc_free(path);
        if (status != DLC_ERR_DATA)
            return status;
        dlc_warn("%s; trying the one before", dlc_detail());
    }
}

/* From rank 0, which may have none. */
static dlc_status share_solver_bytes(dlc_session *session) {
    uint64_t count = session->saved ? session->saved_bytes : UINT64_MAX;
    DLC_TRY(dlc_job_broadcast(session->job, 0, &count, sizeof count));
    if (count == UINT64_MAX)
        return DLC_OK;
    if (session->rank != 0)
        DLC_TRY(keep_solver_bytes(session, NULL, (size_t)count));
    return dlc_job_broadcast(session->job, 0, session->saved, (size_t)count);
}

/* The arenas that all ranks have alike, from rank 0. */
static dlc_status share_arenas(dlc_session *session, dlc_net *net, int with_solver) {
    const dlc_arenas *arenas = dlc_net_arenas(net);
    if (pieces_of(session, net)) /* everybody has got what is its */
        return DLC_OK;
    DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->weights,
                               arenas->count * sizeof(float)));
    if (arenas->buffer_count)
        DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->buffers,
                                   arenas->buffer_count * sizeof(float)));
    for (int32_t i = 0; with_solver && i < session->needs.slots; i++)
        if (slot_is_saved(session, i))
            DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0,
                                       session->slot[i].base,
                                       arenas->count * sizeof(float)));
    return DLC_OK;
}

/* What rank 0 read, to all. */
static dlc_status share_state(dlc_session *session, dlc_net *net, int with_solver) {
    if (session->ranks == 1)
        return DLC_OK;
    DLC_TRY(share_arenas(session, net, with_solver));
    if (with_solver && session->loss_scale.base)
        DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0,
                                   session->loss_scale.base, sizeof(dlc_loss_scale)));
    if (with_solver)
        DLC_TRY(share_solver_bytes(session));
    return dlc_job_broadcast(session->job, 0, &session->iteration,
                             sizeof session->iteration);
}

dlc_status dlc_checkpoint_resume(dlc_session *session, const char *path) {
    dlc_status status = DLC_OK;
    if (session->rank == 0)
        status = strcmp(path, "auto") == 0 ? resume_newest(session)
                                           : resume_path(session, path);
    status = end_pieces(session, session->net, status);
    DLC_TRY(share_status(session, status));
    DLC_TRY(share_state(session, session->net, 1));
    if (!session->feed) /* a server has none */
        return DLC_OK;
    return dlc_feed_seek(session->feed, session->iteration * session->micro_batches);
}

dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const char *path) {
    dlc_status status = DLC_OK;
    if (session->rank == 0) {
        dlc_safetensors *file = NULL;
        status = dlc_safetensors_open(path, &file);
        if (status == DLC_OK)
            status = import_weights(session, net, file);
        dlc_safetensors_close(file);
    }
    status = end_pieces(session, net, status);
    DLC_TRY(share_status(session, status));
    return share_state(session, net, 0);
}
