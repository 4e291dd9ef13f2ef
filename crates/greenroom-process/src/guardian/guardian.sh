# greenroom-guardian: ends what is left of children whose host is gone
# $1: the beginning of all marks of the host
# $2: the folder of its control groups; empty if it has none
# $3: not empty if the system does not send SIGTERM to the children when the host ends
# then a word for each process group that is there already: its number, and how long it may go on, in milliseconds
trap '' HUP INT QUIT TERM USR1 USR2 ALRM TSTP TTIN TTOU
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
mark=$1 folder=$2 ask=$3
shift 3
groups=" $* "
while read -r line; do
  entry=${line#?}
  case $line in
    +*) groups="$groups$entry " ;;
    -*) case $groups in *" $entry "*) groups=${groups%%" $entry "*}" "${groups#*" $entry "} ;; esac ;;
  esac
done

# Only builtins are sure to be there: without `sleep` nobody is given time, without `grep` the shell itself reads.
pause() {
  sleep 0.1 && waited=$((waited + 100)) || { sleep 1 && waited=$((waited + 1000)); }
}
if command -v grep >/dev/null; then
  tries=32
  marked() { grep -lsF -e "$mark" "$@"; }
else
  tries=0
  has() {
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *"$mark"*) return 0 ;; esac
    done <"$1"
    return 1
  }
  marked() { for file in "$@"; do ! has "$file" || echo "$file"; done; }
fi

# The process groups, each until it is empty or its time has passed.
if [ -n "$ask" ]; then
  for entry in $groups; do kill -TERM "-${entry%/*}"; done
fi
waited=0
while :; do
  left=
  for entry in $groups; do
    id=${entry%/*}
    if [ "$waited" -ge "${entry#*/}" ]; then kill -KILL "-$id"; elif kill -0 "-$id"; then left="$left $entry"; fi
  done
  groups=$left
  [ -n "$groups" ] || break
  pause || waited=2147483647
done

# What has left its group. First these processes are stopped, until a search finds no other one: a stopped process starts none.
[ -z "$folder" ] || echo 1 >"$folder/cgroup.kill"
stop() {
  for file in $(marked "$@"); do
    id=${file#/proc/} id=${id%%/*}
    kill -STOP "$id"
    # The newest first.
    case $stopped in *" $id "*) ;; *) stopped=" $id$stopped" other=1 ;; esac
  done
}
# 0: the system does not know it.
last_number() { last= && read -r skip skip skip skip last </proc/loadavg && [ "$last" -gt 0 ]; }
# A chain of short processes: each one starts the next one and ends. The system numbers processes one after another, and a
# parent runs when its child begins. So a look at the numbers since the last look, in rising order and up to 128 beyond the last
# one, meets the chain. A process has its number a moment before it can be seen, so a look begins with some numbers of the look
# before. Fails if more than 128 were given meanwhile. Too slow without `grep`.
stop_newest() {
  id=$last
  [ "$tries" -gt 0 ] && last_number || return 0
  # The numbers have begun anew, or there are too many: the next round lists all processes.
  [ "$id" -le "$last" ] && [ "$last" -le $((id + 4096)) ] || { search=$tries && return 1; }
  ahead=$((last + 128)) files= id=$((id > 128 ? id - 128 : 0))
  while [ "$id" -lt "$ahead" ]; do id=$((id + 1)) files="$files /proc/$id/environ"; done
  stop $files
  read -r skip skip skip skip now </proc/loadavg
  [ "$now" -ge "$last" ] && [ "$now" -le "$ahead" ]
}
# Two clean rounds: a process between two programs shows no environment for a moment.
round=0 clean=0
while [ "$round" -lt 50 ] && [ "$clean" -lt 2 ]; do
  round=$((round + 1)) clean=$((clean + 1)) stopped=' ' search=0
  last_number
  stop /proc/[0-9]/environ /proc/[0-9][0-9]/environ /proc/[0-9][0-9][0-9]/environ /proc/[0-9][0-9][0-9][0-9]/environ \
    /proc/[0-9][0-9][0-9][0-9][0-9]/environ /proc/[0-9][0-9][0-9][0-9][0-9][0-9]*/environ
  while other= search=$((search + 1)); ! stop_newest || [ -n "$other" ]; do
    [ "$search" -lt "$tries" ] || { clean=0; break; }
  done
  if [ "$stopped" != ' ' ]; then
    clean=0 files=
    for id in $stopped; do files="$files /proc/$id/environ"; done
    found=$(marked $files)
    for id in $stopped; do
      # Once more: it may have ended during the search, and the pid may be reused; continue that process.
      case $found in *"/proc/$id/"*) kill -KILL "$id" ;; *) kill -CONT "$id" ;; esac
    done
  fi
  if [ -d "$folder" ]; then
    # Deeper ones are of hosts that ran under these children.
    rmdir "$folder"/*/*/*/*/*/ "$folder"/*/*/*/*/ "$folder"/*/*/*/ "$folder"/*/*/ "$folder"/*/ "$folder"
    [ ! -d "$folder" ] || clean=0
  fi
  [ "$clean" -gt 0 ] || pause
done
