# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Sourced by the scripts that train: common options, and the start of a program on ranks or on emulated hosts.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
name=$(basename "$0")
mpi=any ranks=4 hosts='' link=1gbit json='' plot=''
arguments=() on=()

fail() { echo "$name: $2" >&2 && exit "$1"; }

# take_options NAME,... WORD...: sets the variables NAME from options --NAME VALUE or --NAME=VALUE, and collects the
# other words, the options of the program, in `arguments`. For --help, prints the head of the script, and makes --help
# the only option of the program.
take_options() {
  local names=,$1, option
  shift
  while (($#)); do
    if [[ $1 == -h || $1 == --help ]]; then
      awk 'NR > 2 { if (!sub(/^# ?/, "")) exit; print }' "$0"
      ranks=1 hosts='' json='' plot='' arguments=(--help)
      return
    fi
    option=${1%%=*} && option=${option#--}
    if [[ $1 != --* || $names != *,"$option",* ]]; then
      arguments+=("$1") && shift
      continue
    fi
    if [[ $1 == *=* ]]; then set -- "${1%%=*}" "${1#*=}" "${@:2}"; fi
    [[ $# -ge 2 ]] || fail 2 "$1 needs a value"
    printf -v "$option" %s "$2" && shift 2
  done
  case $mpi in any | openmpi | mpich) ;; *) fail 2 "--mpi must be openmpi or mpich, not $mpi" ;; esac
  [[ $ranks =~ ^[1-9][0-9]*$ ]] || fail 2 "--ranks must be a positive number, not $ranks"
}

# prepare PACKAGES...: installs what the script needs, and sets `ranks`, and `on`, which runs a command on the hosts.
prepare() {
  local packages=("$@")
  if [[ -n $plot ]]; then
    packages+=(plot)
    if [[ -z $json ]]; then json=$(mktemp) && trap 'rm -f "$json"' EXIT; fi
  fi
  "$scripts/setup" "${packages[@]}" || echo "$name: setup failed, continuing with the installed packages" >&2
  if [[ -n $hosts ]]; then
    on=("$scripts/hosts" "$hosts" "$link")
    "${on[@]}" true # fails for invalid hosts before building
    ranks=$((${hosts//,/+}))
  fi
}

# build NAME: builds the program NAME, and sets `program` to its path, `mpi` to its library, and `start` to the words
# that start a command on all ranks.
build() {
  program=$("$scripts/program" "$1" "$mpi")
  mpi=${program##*_}
  start=(${on[@]+"${on[@]}"} "$scripts/mpirun" "$mpi" "$ranks")
}
