/*
 * What a server learns of a client before it answers (CONTRACT 2.12).
 */
#include "listening.h"

/*
 * The client's number: what its worker was given (`given`), if the client says that it is to be sent (`sent`). A server
 * that asks for it all the same hears of 0.
 */
static void client_id_facts(bed_t *bed, uint64_t id, int given, int sent, const char *what)
{
    static server_t server;
    client_t        client = {.ep = NULL};
    ucp_worker_h    worker = NULL;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t           address = loopback(AF_INET, server.port);
        ucp_worker_params_t params  = {.field_mask = given ? UCP_WORKER_PARAM_FIELD_CLIENT_ID : 0u, .client_id = id};
        unsigned            flags   = sent ? UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID : 0u;
        must(bed->a, ucp_worker_create(bed->a->context, &params, &worker), "ucp_worker_create");
        must(bed->a, dial_with(worker, &client, &address, flags), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, ((worker != NULL ? ucp_worker_progress(worker) : 0), server.count > 0));
        ucp_conn_request_attr_t attr = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID |
                                                      UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
        attr.client_id      = 5;
        ucs_status_t status = ucp_conn_request_query(server.requests[0], &attr);
        rule(bed->b, "C3", "%s: query: %s, client id %lu, from %s", what, status_name(status),
             (unsigned long)attr.client_id, family_name(&attr.client_address));
        attr.field_mask = 0;
        attr.client_id  = 5;
        status          = ucp_conn_request_query(server.requests[0], &attr);
        fact(bed->b, "%s: query of nothing: %s, untouched %d", what, status_name(status), attr.client_id == 5);
        ucp_listener_reject(server.listener, server.requests[0]);
        ucp_listener_destroy(server.listener);
    }
    if (bed->a != NULL) {
        BED_UNTIL(bed, (ucp_worker_progress(worker), client.failures > 0));
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
        ucs_status_ptr_t    close = ucp_ep_close_nbx(client.ep, &param);
        BED_UNTIL(bed, (ucp_worker_progress(worker),
                        !UCS_PTR_IS_PTR(close) || ucp_request_check_status(close) != UCS_INPROGRESS));
        bed_wait(bed, close);
        ucp_worker_destroy(worker);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open_unconnected(bed, &params);
    bed_sync(bed);
    client_id_facts(bed, 77, 1, 1, "77");
    client_id_facts(bed, 0x8000000000000001, 1, 1, "a large number");
    client_id_facts(bed, 0, 1, 1, "0");
    client_id_facts(bed, 77, 1, 0, "not sent");
    client_id_facts(bed, 77, 0, 1, "not given");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    setenv("UCX_TLS", "tcp,self,sm", getenv("LISTEN_AT") == NULL);
    return bed_main(argc, argv, script);
}
