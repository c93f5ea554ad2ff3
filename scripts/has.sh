# SPDX-License-Identifier: Apache-2.0
# What this machine has: read by scripts that ask.

has_command() { command -v "$1" > /dev/null 2>&1; }
has_header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ - > /dev/null 2>&1; }
has_library() { echo "int main() {}" | g++ -x c++ - -o /dev/null "-l$1" > /dev/null 2>&1; }

has_fuzzer() {
    echo 'extern "C" int LLVMFuzzerTestOneInput(unsigned char const*, unsigned long) { return 0; }' |
        clang++ -fsanitize=fuzzer -x c++ - -o /dev/null > /dev/null 2>&1
}

# Packages of PyPI that tests compare with, for `import` only. They lie beside the system's, which pip leaves alone.
python_packages=${XDG_CACHE_HOME:-$HOME/.cache}/reshard-python
export PYTHONPATH=$python_packages${PYTHONPATH:+:$PYTHONPATH}
has_python() { python3 -c "import $1" > /dev/null 2>&1; }
