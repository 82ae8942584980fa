# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_oxctl_global_optspecs
    string join \n socket= o/output= h/help V/version
end

function __fish_oxctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_oxctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_oxctl_using_subcommand
    set -l cmd (__fish_oxctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c oxctl -n "__fish_oxctl_needs_command" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_needs_command" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_needs_command" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_needs_command" -s V -l version -d 'Print version'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "console" -d 'Shows the node live: tree, plugins, pods with their why and logs, volumes, images, pressure, events'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "tree" -d 'Shows every supervisor and actor'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "plugins" -d 'Shows the plugins'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "plugin" -d 'Restarts a plugin, or swaps it for another one'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "pods" -d 'Shows the pods of this node'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "top" -d 'Shows what the agent, its plugins and the pods use of CPU and memory, again and again in a terminal'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "cpus" -d 'Shows the machine\'s CPUs and memory, and who has which to itself'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "devices" -d 'Shows the devices of device plugins and of resource claims, and who has them'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "images" -d 'Shows the images that are pulled, wait, or back off'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "image" -d 'Lists, pulls, removes, imports and exports images of the runtime'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "volumes" -d 'Shows the volumes of this node\'s pods, and what hangs'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "events" -d 'Shows what happened'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "why" -d 'Explains what was done about a pod, and what it waits for'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "checkpoint" -d 'Writes a running container\'s state into an archive on the node, and prints its path'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "diagnose" -d 'Writes all that shows how the node does into one archive without secrets, whether or not the agent runs'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "fault" -d 'Breaks an actor on purpose'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "version" -d 'Shows the versions of agent and oxctl'
complete -c oxctl -n "__fish_oxctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c oxctl -n "__fish_oxctl_using_subcommand console" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand console" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand console" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand tree" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand tree" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand tree" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugins" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand plugins" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand plugins" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and not __fish_seen_subcommand_from restart swap help" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and not __fish_seen_subcommand_from restart swap help" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and not __fish_seen_subcommand_from restart swap help" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and not __fish_seen_subcommand_from restart swap help" -f -a "restart" -d 'Drains a plugin, ends it and starts it again'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and not __fish_seen_subcommand_from restart swap help" -f -a "swap" -d 'Replaces the plugin of a kind (runtime) by another declared one'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and not __fish_seen_subcommand_from restart swap help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from restart" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from restart" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from restart" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from swap" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from swap" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from swap" -l end-pods -d 'End the pods in the old runtime, each within its grace period, if the new one doesn\'t know them'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from swap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from help" -f -a "restart" -d 'Drains a plugin, ends it and starts it again'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from help" -f -a "swap" -d 'Replaces the plugin of a kind (runtime) by another declared one'
complete -c oxctl -n "__fish_oxctl_using_subcommand plugin; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c oxctl -n "__fish_oxctl_using_subcommand pods" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand pods" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand pods" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -l sort -d 'What the rows are sorted by, the largest first' -r -f -a "cpu\t''
memory\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -l interval -d 'Seconds between two views' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -l once -d 'Print one table and end, as without a terminal'
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -l containers -d 'Show each container of a pod'
complete -c oxctl -n "__fish_oxctl_using_subcommand top" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand cpus" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand cpus" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand cpus" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand devices" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand devices" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand devices" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand images" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand images" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand images" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -l runtime -d 'The runtime\'s socket; the agent is asked for it otherwise' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -f -a "ls" -d 'Lists the images that the runtime has'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -f -a "pull" -d 'Pulls an image'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -f -a "rm" -d 'Removes images with all their names; what containers use stays until they are gone'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -f -a "import" -d 'Takes the images of an archive into the runtime: an OCI layout or `docker save`\'s, packed by gzip, zstd or not'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -f -a "export" -d 'Writes images into an archive: an OCI layout with Docker\'s manifest.json'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and not __fish_seen_subcommand_from ls pull rm import export help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from ls" -l runtime -d 'The runtime\'s socket; the agent is asked for it otherwise' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from ls" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from ls" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from pull" -l username -d 'Who pulls; the password is read from standard input' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from pull" -l runtime -d 'The runtime\'s socket; the agent is asked for it otherwise' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from pull" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from pull" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from pull" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from rm" -l runtime -d 'The runtime\'s socket; the agent is asked for it otherwise' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from rm" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from rm" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from import" -l name -d 'The name of the one image in it, whatever name it has there' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from import" -l platform -d 'Which image of several platforms is taken, as linux/arm64; this machine\'s otherwise' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from import" -l runtime -d 'The runtime\'s socket; the agent is asked for it otherwise' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from import" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from import" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from export" -s f -l file -d 'The archive; - is standard output' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from export" -l runtime -d 'The runtime\'s socket; the agent is asked for it otherwise' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from export" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from export" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "ls" -d 'Lists the images that the runtime has'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "pull" -d 'Pulls an image'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Removes images with all their names; what containers use stays until they are gone'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "import" -d 'Takes the images of an archive into the runtime: an OCI layout or `docker save`\'s, packed by gzip, zstd or not'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "export" -d 'Writes images into an archive: an OCI layout with Docker\'s manifest.json'
complete -c oxctl -n "__fish_oxctl_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c oxctl -n "__fish_oxctl_using_subcommand volumes" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand volumes" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand volumes" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand events" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand events" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand events" -s f -l follow -d 'And what happens from now on'
complete -c oxctl -n "__fish_oxctl_using_subcommand events" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand why" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand why" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand why" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand checkpoint" -l timeout -d 'Seconds that it may take, where the runtime\'s usual time is too short' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand checkpoint" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand checkpoint" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand checkpoint" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -s o -l output -d 'The archive [default: oxlet-diagnose-NODE-TIME.tar.gz in this folder]' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -l config -d 'The agent\'s configuration, read where no agent runs' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -l root-dir -d 'The agent\'s --root-dir, where no agent runs' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -l unit -d 'The agent\'s unit, by which the journal has its log' -r
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -l force -d 'Replace the archive if it is there'
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -l no-container-logs -d 'Leave out the containers\' logs, in which is whatever the containers write'
complete -c oxctl -n "__fish_oxctl_using_subcommand diagnose" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand fault" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand fault" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand fault" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand version" -l socket -d 'The agent\'s admin socket' -r -F
complete -c oxctl -n "__fish_oxctl_using_subcommand version" -s o -l output -d 'A table for people, or JSON for programs' -r -f -a "table\t''
json\t''"
complete -c oxctl -n "__fish_oxctl_using_subcommand version" -s h -l help -d 'Print help'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "console" -d 'Shows the node live: tree, plugins, pods with their why and logs, volumes, images, pressure, events'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "tree" -d 'Shows every supervisor and actor'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "plugins" -d 'Shows the plugins'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "plugin" -d 'Restarts a plugin, or swaps it for another one'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "pods" -d 'Shows the pods of this node'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "top" -d 'Shows what the agent, its plugins and the pods use of CPU and memory, again and again in a terminal'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "cpus" -d 'Shows the machine\'s CPUs and memory, and who has which to itself'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "devices" -d 'Shows the devices of device plugins and of resource claims, and who has them'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "images" -d 'Shows the images that are pulled, wait, or back off'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "image" -d 'Lists, pulls, removes, imports and exports images of the runtime'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "volumes" -d 'Shows the volumes of this node\'s pods, and what hangs'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "events" -d 'Shows what happened'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "why" -d 'Explains what was done about a pod, and what it waits for'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "checkpoint" -d 'Writes a running container\'s state into an archive on the node, and prints its path'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "diagnose" -d 'Writes all that shows how the node does into one archive without secrets, whether or not the agent runs'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "fault" -d 'Breaks an actor on purpose'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "version" -d 'Shows the versions of agent and oxctl'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and not __fish_seen_subcommand_from console tree plugins plugin pods top cpus devices images image volumes events why checkpoint diagnose fault version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from plugin" -f -a "restart" -d 'Drains a plugin, ends it and starts it again'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from plugin" -f -a "swap" -d 'Replaces the plugin of a kind (runtime) by another declared one'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "ls" -d 'Lists the images that the runtime has'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "pull" -d 'Pulls an image'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "rm" -d 'Removes images with all their names; what containers use stays until they are gone'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "import" -d 'Takes the images of an archive into the runtime: an OCI layout or `docker save`\'s, packed by gzip, zstd or not'
complete -c oxctl -n "__fish_oxctl_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "export" -d 'Writes images into an archive: an OCI layout with Docker\'s manifest.json'
