"""SSH signatures of OpenSSH (PROTOCOL.sshsig), and the list of keys that may make them. Pure."""
