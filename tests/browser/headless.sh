#!/bin/sh
# The unpacked browser with its own libraries and fonts, for whoever wants one path to start.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/al2023/lib" FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/chromium" "$@"
