/* An all-reduce built from messages, for mutants of the template that `dlcore plugin
 * new transport` creates: every rank sends everything to every other and sums pairwise
 * in rank order. */
enum { ALL_REDUCE_TAG = 77, ALL_REDUCE_RANKS = 8 };

static dlc_status add_pairwise(float **part, int32_t ranks, size_t count) {
    for (int32_t stride = 1; stride < ranks; stride *= 2)
        for (int32_t r = 0; r + stride < ranks; r += 2 * stride)
            for (size_t i = 0; i < count; i++)
                part[r][i] += part[r + stride][i];
    return DLC_OK;
}

static dlc_status template_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    int32_t me = e->args->rank, ranks = e->args->ranks;
    size_t bytes = count * sizeof *buffer;
    dlc_request *requests[2 * ALL_REDUCE_RANKS];
    float *part[ALL_REDUCE_RANKS] = {0};
    int n = 0;
    dlc_status rc = DLC_OK;
    for (int32_t r = 0; r < ranks; r++)
        if (!(part[r] = host->alloc(bytes + 64)))
            return DLC_ERR_NOMEM;
    memcpy(part[me], buffer, bytes);
    for (int32_t r = 0; rc == DLC_OK && r < ranks; r++)
        if (r != me && (rc = transport_recv(e, r, ALL_REDUCE_TAG, part[r], bytes,
                                            &requests[n++])) == DLC_OK)
            rc = transport_send(e, r, ALL_REDUCE_TAG, buffer, bytes, &requests[n++]);
    while (rc == DLC_OK && n > 0)
        rc = transport_wait(e, requests[--n]);
    if (rc == DLC_OK)
        rc = add_pairwise(part, ranks, count);
    if (rc == DLC_OK)
        memcpy(buffer, part[0], bytes);
    for (int32_t r = 0; r < ranks; r++)
        host->free(part[r]);
    return rc;
}
