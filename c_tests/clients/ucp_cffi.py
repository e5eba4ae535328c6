#!/usr/bin/env python3
"""Makes bindings of ucp.h with cffi, which reads C by pycparser, and sends a message to itself by them.

usage: ucp_cffi.py PREFIX

The declarations are the header's own, preprocessed, without constructs that cffi cannot read: attributes (its compiler
sees them in the header itself) and inline functions. cffi's compiler checks each type and constant against the header.
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

import cffi

HEADER = "#include <ucp/api/ucp.h>\n"
# Prefix of declarations that the header includes.
READ = re.compile(r"/(?:ucp/api/\w+|ucs/type/status|ucs/type/thread_mode|ucs/config/types|ucs/memory/memory_type)\.h$")
# Types of other headers that the declarations name, and constants that are macros.
OTHERS = """
#define UCP_API_MAJOR ...
#define UCP_API_MINOR ...
typedef struct { ...; } ucs_cpu_set_t;
typedef unsigned int socklen_t;
struct sockaddr { ...; };
struct sockaddr_storage { ...; };
"""
TAG = 0x1234


def declarations(prefix):
    """The declarations of the headers below PREFIX, without those included from others."""
    include = os.path.join(prefix, "include")
    made = subprocess.run(["cc", "-E", "-I", include, "-x", "c", "-"], input=HEADER, capture_output=True, text=True,
                          check=True).stdout
    lines, is_ours = [], False
    for line in made.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            is_ours = READ.search(marker.group(1)) and marker.group(1).startswith(include)
        elif is_ours:
            lines.append(line)
    text = re.sub(r"__attribute__\s*\(\([^()]*(?:\([^()]*\))?[^()]*\)\)", "", "\n".join(lines))
    # A constant that depends on a condition (UCX's UCP_DATATYPE_CLASS_MASK).
    text = re.sub(r"\b\w+\s*=[^,{}]*\?[^,{}]*", "", text)
    # An inline function ends with a brace in the first column.
    return OTHERS + re.sub(r"^static\b[^;{}]*\{.*?^\}", "", text, flags=re.M | re.S)


def bindings(prefix, work):
    """Compiles the bindings, and loads them."""
    maker = cffi.FFI()
    maker.cdef(declarations(prefix))
    library = os.path.join(prefix, "lib")
    maker.set_source("ucp_bindings", HEADER, include_dirs=[os.path.join(prefix, "include")], libraries=["ucp", "ucs"],
                     library_dirs=[library], extra_link_args=[f"-Wl,-rpath,{library}"], extra_compile_args=["-w"])
    path = maker.compile(tmpdir=work)
    spec = importlib.util.spec_from_file_location("ucp_bindings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ffi, module.lib


def check_types(ffi, lib):
    """Checks that each type and constant is as in C."""
    status = ffi.typeof("ucs_status_t")
    assert status.kind == "enum" and ffi.sizeof(status) == 1, status
    assert status.relements["UCS_ERR_LAST"] == lib.UCS_ERR_LAST == -100
    param = dict(ffi.typeof("ucp_request_param_t").fields)
    for name, member in (("cb", "recv_am"), ("recv_info", "tag_info")):
        union = param[name].type
        assert union.kind == "union" and member in dict(union.fields), name
        assert "$" in union.cname or "anonymous" in union.cname, f"{name}: {union.cname} has a name"
    assert ffi.sizeof("ucp_request_param_t") == 96
    assert lib.UCP_MEM_MAP_PROT_REMOTE_WRITE == 1 << 9 and lib.UCP_AM_SEND_REPLY == lib.UCP_AM_SEND_FLAG_REPLY == 1
    assert lib.UCS_MEMORY_TYPE_UNKNOWN == lib.UCS_MEMORY_TYPE_LAST


def must(lib, ffi, status, what):
    assert status == lib.UCS_OK, f"{what}: {ffi.string(lib.ucs_status_string(status)).decode()}"


def send_to_itself(ffi, lib):
    """Returns the received bytes of a message that the worker sends to itself."""
    def make(function, kind, *arguments):
        out = ffi.new(f"{kind} *")
        must(lib, ffi, function(*arguments, out), kind)
        return out[0]

    params = ffi.new("ucp_params_t *", {"field_mask": lib.UCP_PARAM_FIELD_FEATURES, "features": lib.UCP_FEATURE_TAG})
    context = make(lib.ucp_init_version, "ucp_context_h", lib.UCP_API_MAJOR, lib.UCP_API_MINOR, params, ffi.NULL)
    worker = make(lib.ucp_worker_create, "ucp_worker_h", context, ffi.new("ucp_worker_params_t *"))
    attr = ffi.new("ucp_worker_attr_t *", {"field_mask": lib.UCP_WORKER_ATTR_FIELD_ADDRESS})
    must(lib, ffi, lib.ucp_worker_query(worker, attr), "ucp_worker_query")
    ep_params = ffi.new("ucp_ep_params_t *", {"field_mask": lib.UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                              "address": attr.address})
    ep = make(lib.ucp_ep_create, "ucp_ep_h", worker, ep_params)
    statuses = []

    @ffi.callback("ucp_tag_recv_nbx_callback_t")
    def received(_request, status, info, _user_data):
        statuses.append((status, info.sender_tag, info.length))

    sent, room = ffi.new("char[]", b"by cffi"), ffi.new("char[64]")
    param = ffi.new("ucp_request_param_t *")
    param.op_attr_mask = lib.UCP_OP_ATTR_FIELD_CALLBACK | lib.UCP_OP_ATTR_FLAG_NO_IMM_CMPL
    param.cb.recv = received
    requests = [lib.ucp_tag_recv_nbx(worker, room, len(room), TAG, 2**64 - 1, param)]
    plain = ffi.new("ucp_request_param_t *")
    requests += [lib.ucp_tag_send_nbx(ep, sent, len(sent), TAG, plain), lib.ucp_ep_close_nbx(ep, plain)]
    for request in requests:
        if request != ffi.NULL:
            while lib.ucp_request_check_status(request) == lib.UCS_INPROGRESS:
                lib.ucp_worker_progress(worker)
            must(lib, ffi, lib.ucp_request_check_status(request), "a request")
            lib.ucp_request_free(request)
    assert statuses == [(lib.UCS_OK, TAG, len(sent))], statuses
    lib.ucp_worker_release_address(worker, attr.address)
    lib.ucp_worker_destroy(worker)
    lib.ucp_cleanup(context)
    return ffi.string(room)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = os.path.realpath(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        the_ffi, the_lib = bindings(root, directory)
        check_types(the_ffi, the_lib)
        assert send_to_itself(the_ffi, the_lib) == b"by cffi"
    with open("/proc/self/maps", encoding="ascii") as maps:
        mapped = {line.split()[-1] for line in maps if "/libucp" in line}
    assert len(mapped) == 1 and mapped.pop().startswith(root + "/"), mapped
    print(f"cffi: bindings of {root} fine")
