timeout: failed to run command ‘./ucp_hello_world’: No such file or directory
