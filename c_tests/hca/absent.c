/*
 * Functions that the software HCA does not implement. The public ones return an error; the private ones exist only
 * because libmlx5 and libefa, which UCX and perftest link, bind all their imports at start. No device of theirs exists,
 * so none is called but verbs_register_driver_34, by their constructors. The header is not included: with the real
 * prototypes each would need its own body.
 */
#include <errno.h>
#include <stddef.h>

#define REFUSE(name)           \
    int name(void);            \
    int name(void)             \
    {                          \
        return EOPNOTSUPP;     \
    }
#define REFUSE_POINTER(name)   \
    void *name(void);          \
    void *name(void)           \
    {                          \
        errno = EOPNOTSUPP;    \
        return NULL;           \
    }
#define NOTHING(name)          \
    void name(void);           \
    void name(void)            \
    {                          \
    }

/* public */
REFUSE(ibv_attach_mcast)
REFUSE(ibv_detach_mcast)
REFUSE(ibv_rereg_mr)
REFUSE(ibv_resolve_eth_l2_from_gid)
REFUSE(ibv_query_ece)
REFUSE(ibv_set_ece)
REFUSE_POINTER(ibv_import_device)
REFUSE_POINTER(ibv_import_mr)
REFUSE_POINTER(ibv_import_pd)
REFUSE_POINTER(ibv_import_dm)
NOTHING(ibv_unimport_mr)
NOTHING(ibv_unimport_pd)
NOTHING(ibv_unimport_dm)
NOTHING(ibv_copy_path_rec_from_kern)
NOTHING(ibv_copy_path_rec_to_kern)
NOTHING(ibv_copy_qp_attr_from_kern)
NOTHING(ibv_copy_ah_attr_from_kern)

/* pages are not pinned: 0 is "done" */
#define DONE(name)             \
    int name(void);            \
    int name(void)             \
    {                          \
        return 0;              \
    }
DONE(ibv_dofork_range)
DONE(ibv_dontfork_range)

/* private */
extern char verbs_allow_disassociate_destroy;
char verbs_allow_disassociate_destroy;
NOTHING(__verbs_log)
NOTHING(verbs_init_cq)
NOTHING(verbs_register_driver_34)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)
REFUSE_POINTER(verbs_open_device)
REFUSE_POINTER(_verbs_init_and_alloc_context)
REFUSE(execute_ioctl)
REFUSE(ibv_cmd_advise_mr)
REFUSE(ibv_cmd_alloc_dm)
REFUSE(ibv_cmd_alloc_mw)
REFUSE(ibv_cmd_alloc_pd)
REFUSE(ibv_cmd_attach_mcast)
REFUSE(ibv_cmd_close_xrcd)
REFUSE(ibv_cmd_create_ah)
REFUSE(ibv_cmd_create_counters)
REFUSE(ibv_cmd_create_cq_ex)
REFUSE(ibv_cmd_create_flow)
REFUSE(ibv_cmd_create_flow_action_esp)
REFUSE(ibv_cmd_create_qp_ex)
REFUSE(ibv_cmd_create_qp_ex2)
REFUSE(ibv_cmd_create_rwq_ind_table)
REFUSE(ibv_cmd_create_srq)
REFUSE(ibv_cmd_create_srq_ex)
REFUSE(ibv_cmd_create_wq)
REFUSE(ibv_cmd_dealloc_mw)
REFUSE(ibv_cmd_dealloc_pd)
REFUSE(ibv_cmd_dereg_mr)
REFUSE(ibv_cmd_destroy_ah)
REFUSE(ibv_cmd_destroy_counters)
REFUSE(ibv_cmd_destroy_cq)
REFUSE(ibv_cmd_destroy_flow)
REFUSE(ibv_cmd_destroy_flow_action)
REFUSE(ibv_cmd_destroy_qp)
REFUSE(ibv_cmd_destroy_rwq_ind_table)
REFUSE(ibv_cmd_destroy_srq)
REFUSE(ibv_cmd_destroy_wq)
REFUSE(ibv_cmd_detach_mcast)
REFUSE(ibv_cmd_free_dm)
REFUSE(ibv_cmd_get_context)
REFUSE(ibv_cmd_modify_cq)
REFUSE(ibv_cmd_modify_flow_action_esp)
REFUSE(ibv_cmd_modify_qp)
REFUSE(ibv_cmd_modify_qp_ex)
REFUSE(ibv_cmd_modify_srq)
REFUSE(ibv_cmd_modify_wq)
REFUSE(ibv_cmd_open_qp)
REFUSE(ibv_cmd_open_xrcd)
REFUSE(ibv_cmd_query_context)
REFUSE(ibv_cmd_query_device_any)
REFUSE(ibv_cmd_query_mr)
REFUSE(ibv_cmd_query_port)
REFUSE(ibv_cmd_query_qp)
REFUSE(ibv_cmd_query_srq)
REFUSE(ibv_cmd_read_counters)
REFUSE(ibv_cmd_reg_dm_mr)
REFUSE(ibv_cmd_reg_dmabuf_mr)
REFUSE(ibv_cmd_reg_mr)
REFUSE(ibv_cmd_rereg_mr)
REFUSE(ibv_cmd_resize_cq)
