# greenroom-guardian: ends what is left of CLIs whose host is gone
# $1: the beginning of all marks of the host
# $2: the folder of its control groups; empty if it has none
# $3: not empty if the system does not send SIGTERM to the CLIs when the host ends
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
  has() { grep -qsF -e "$mark" "$1"; }
  marked() { grep -lsF -e "$mark" /proc/[0-9]*/environ; }
else
  has() {
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *"$mark"*) return 0 ;; esac
    done <"$1"
    return 1
  }
  marked() { for file in /proc/[0-9]*/environ; do ! has "$file" || echo "$file"; done; }
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

# What has left its group. Twice: a process between two programs shows no environment for a moment.
[ -z "$folder" ] || echo 1 >"$folder/cgroup.kill"
round=0 clean=0
while [ "$round" -lt 50 ] && [ "$clean" -lt 2 ]; do
  round=$((round + 1)) clean=$((clean + 1))
  for file in $(marked); do
    # Once more: it may have ended during the search, and its number may be another's.
    id=${file#/proc/}
    ! has "$file" || ! kill -KILL "${id%%/*}" || clean=0
  done
  if [ -d "$folder" ]; then
    # Deeper ones are of hosts that ran under these CLIs.
    rmdir "$folder"/*/*/*/*/*/ "$folder"/*/*/*/*/ "$folder"/*/*/*/ "$folder"/*/*/ "$folder"/*/ "$folder"
    [ ! -d "$folder" ] || clean=0
  fi
  [ "$clean" -gt 0 ] || pause || break
done
