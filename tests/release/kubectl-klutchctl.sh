#!/bin/sh
# Runs klutchctl with the packages beside this file, by the first Python that these are for.
here=$(dirname "$(readlink -f "$0")")
for python in python3 python3.13 python3.12 python3.11; do
  if "$python" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
    # By no variable: programs that are started, such as credential plug-ins, would inherit it.
    exec "$python" -I -c 'import sys; sys.path.insert(0, sys.argv.pop(1)); from klutchctl.__main__ import main; main()' \
      "$here/packages" "$@"
  fi
done
echo "Error: klutchctl needs Python 3.11, 3.12 or 3.13 on PATH" >&2
exit 1
