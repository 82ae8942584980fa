#!/bin/sh
# A CNI plugin that keeps what it makes as folders in ../state, and does what files there say:
#   say.WHAT   prints the file and ends well        fail.WHAT  prints the file and fails
#   hang.WHAT  never ends, after what it had to do  where WHAT is VERB, VERB.NAME or VERB.NAME.CONTAINER
home=$(dirname "$0")/../state
name=$(basename "$0")
call=$CNI_COMMAND.$name.$CNI_CONTAINERID
cat >"$home/stdin.$call"
env | grep ^CNI_ | sort >"$home/env.$call"
echo "$CNI_COMMAND $name $CNI_CONTAINERID" >>"$home/log"
key=$CNI_CONTAINERID.$CNI_IFNAME
made=$home/made.$name.$key
told() {
    for what in "$CNI_COMMAND" "$CNI_COMMAND.$name" "$call"; do
        if [ -e "$home/$1.$what" ]; then
            file=$home/$1.$what
            return 0
        fi
    done
    return 1
}
forget() {
    if [ -e "$1/ip" ]; then rmdir "$home/ip.$(cat "$1/ip")"; fi
    rm -rf "$1"
}
if told fail; then
    cat "$file"
    exit 1
fi
case $CNI_COMMAND in
ADD)
    if ! mkdir "$made" 2>/dev/null; then
        echo '{"code": 100, "msg": "made twice"}'
        exit 1
    fi
    number=2
    until mkdir "$home/ip.$number" 2>/dev/null; do number=$((number + 1)); done
    echo $number >"$made/ip"
    ;;
DEL) forget "$made" ;;
CHECK)
    if [ ! -d "$made" ]; then
        echo '{"code": 100, "msg": "it is not made"}'
        exit 1
    fi
    ;;
GC)
    for made in "$home/made.$name".*; do
        id=${made#"$home/made.$name."}
        grep -q "\"containerID\":\"${id%.*}\"" "$home/stdin.$call" || forget "$made"
    done
    ;;
esac
if told hang; then
    exec sleep 600
fi
if told say; then
    cat "$file"
    exit 0
fi
if [ "$CNI_COMMAND" = ADD ]; then
    echo '{"cniVersion": "1.1.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}],'
    echo '"ips": [{"address": "10.77.0.'$number'/16", "interface": 0}]}'
fi
