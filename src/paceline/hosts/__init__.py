"""The hosts file: reading and writing it, ssh to the hosts, sending code to them."""
