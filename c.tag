timeout: failed to run command ‘./ucp_client_server’: No such file or directory
