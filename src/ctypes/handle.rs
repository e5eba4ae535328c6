//! Opaque handles, tags and the other names that everything else in UCP uses.

/// Longest name of a context, worker or endpoint, terminating zero included.
pub const UCP_ENTITY_NAME_MAX: usize = 32;

/// `remote_addr` of a put whose remote addresses come in a scatter-gather list.
pub const UCP_REMOTE_ADDR_INVALID: u64 = u64::MAX;

/// `rkey` of a put whose remote keys come in a scatter-gather list.
pub const UCP_RKEY_INVALID: ucp_rkey_h = std::ptr::null_mut();

/// A context: one communication instance of a program.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_context {
    _private: [u8; 0],
}
/// A context: one communication instance of a program.
pub type ucp_context_h = *mut ucp_context;

/// Options of a context.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_config {
    _private: [u8; 0],
}
/// Options of a context.
pub type ucp_config_t = ucp_config;

/// A worker: the progress engine, its transports and its queues.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_worker {
    _private: [u8; 0],
}
/// A worker: the progress engine, its transports and its queues.
pub type ucp_worker_h = *mut ucp_worker;

/// The bytes by which peers reach a worker.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_address {
    _private: [u8; 0],
}
/// The bytes by which peers reach a worker.
pub type ucp_address_t = ucp_address;

/// An endpoint: the connection of a worker to one other worker.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_ep {
    _private: [u8; 0],
}
/// An endpoint: the connection of a worker to one other worker.
pub type ucp_ep_h = *mut ucp_ep;

/// A listener: accepts clients on a socket address.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_listener {
    _private: [u8; 0],
}
/// A listener: accepts clients on a socket address.
pub type ucp_listener_h = *mut ucp_listener;

/// A client that requests a connection.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_conn_request {
    _private: [u8; 0],
}
/// A client that requests a connection.
pub type ucp_conn_request_h = *mut ucp_conn_request;

/// Memory that peers may access.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_mem {
    _private: [u8; 0],
}
/// Memory that peers may access.
pub type ucp_mem_h = *mut ucp_mem;

/// The key to another process's memory.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_rkey {
    _private: [u8; 0],
}
/// The key to another process's memory.
pub type ucp_rkey_h = *mut ucp_rkey;

/// An unexpected message.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_recv_desc {
    _private: [u8; 0],
}
/// A message that a probe found.
pub type ucp_tag_message_h = *mut ucp_recv_desc;

/// Local memory as a device sees it.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_device_local_mem_list {
    _private: [u8; 0],
}
/// Local memory as a device sees it.
pub type ucp_device_local_mem_list_h = *mut ucp_device_local_mem_list;

/// Remote memory as a device sees it.
/// cbindgen:no-export
#[repr(C)]
pub struct ucp_device_remote_mem_list {
    _private: [u8; 0],
}
/// Remote memory as a device sees it.
pub type ucp_device_remote_mem_list_h = *mut ucp_device_remote_mem_list;

/// The label by which messages and receives are matched.
pub type ucp_tag_t = u64;

/// How the elements of a buffer are laid out.
pub type ucp_datatype_t = u64;

/// Attributes of a received message.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_tag_recv_info {
    /// The sender's tag, all bits of it.
    pub sender_tag: ucp_tag_t,
    /// Bytes that were sent.
    pub length: usize,
}
/// Attributes of a received message.
pub type ucp_tag_recv_info_t = ucp_tag_recv_info;

/// Attributes of an active message.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucp_am_recv_param {
    /// Which fields and flags are set, from `ucp_am_recv_attr_t`.
    pub recv_attr: u64,
    /// Endpoint for the reply, if the sender requested one.
    pub reply_ep: ucp_ep_h,
}
/// Attributes of an active message.
pub type ucp_am_recv_param_t = ucp_am_recv_param;

const _: () = {
    assert!(size_of::<ucp_tag_recv_info>() == 16);
    assert!(size_of::<ucp_am_recv_param>() == 16);
};
