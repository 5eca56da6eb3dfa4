"""The command line: arguments in, exit codes and output out."""
