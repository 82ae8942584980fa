complete -c oxlet -l address -d 'address that the servers listen on (deprecated)' -r -f
complete -c oxlet -l allowed-unsafe-sysctls -d 'unsafe sysctls that pods may set (deprecated)' -r -f
complete -c oxlet -l application-metrics-count-limit -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l authentication-token-webhook-cache-ttl -d 'how long such an answer is good (deprecated)' -r -f
complete -c oxlet -l authorization-mode -d 'AlwaysAllow or Webhook (deprecated)' -r -f
complete -c oxlet -l authorization-webhook-cache-authorized-ttl -d 'how long a yes is good (deprecated)' -r -f
complete -c oxlet -l authorization-webhook-cache-unauthorized-ttl -d 'how long a no is good (deprecated)' -r -f
complete -c oxlet -l boot-id-file -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l bootstrap-kubeconfig -d 'how to get the first client certificate' -r -f
complete -c oxlet -l cert-dir -d 'folder of certificates' -r -F
complete -c oxlet -l cgroup-driver -d 'cgroupfs or systemd (deprecated)' -r -f
complete -c oxlet -l cgroup-root -d 'cgroup above those of pods (deprecated)' -r -f
complete -c oxlet -l client-ca-file -d 'authorities of client certificates (deprecated)' -r -f
complete -c oxlet -l cloud-provider -d 'external or empty' -r -f
complete -c oxlet -l cluster-dns -d 'DNS servers of the cluster (deprecated)' -r -f
complete -c oxlet -l cluster-domain -d 'DNS domain of the cluster (deprecated)' -r -f
complete -c oxlet -l config -d 'KubeletConfiguration file' -r -F
complete -c oxlet -l config-dir -d 'folder of *.conf drop-ins, merged over that file in lexical order' -r -F
complete -c oxlet -l container-hints -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l container-log-max-files -d 'log files kept of a container (deprecated)' -r -f
complete -c oxlet -l container-log-max-size -d 'size at which a container\'s log is rotated (deprecated)' -r -f
complete -c oxlet -l container-runtime-endpoint -d 'socket of the container runtime (deprecated)' -r -F
complete -c oxlet -l containerd -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l containerd-namespace -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l cpu-cfs-quota-period -d 'period of CPU limits (deprecated)' -r -f
complete -c oxlet -l cpu-manager-policy -d 'none or static (deprecated)' -r -f
complete -c oxlet -l cpu-manager-policy-options -d 'key=value options of that policy (deprecated)' -r -f
complete -c oxlet -l cpu-manager-reconcile-period -d 'time between two checks of cpusets (deprecated; no effect: containers are moved as soon as their CPUs are others)' -r -f
complete -c oxlet -l enforce-node-allocatable -d 'which reservations are enforced (deprecated)' -r -f
complete -c oxlet -l event-burst -d 'events at once, within event-qps on average (deprecated)' -r -f
complete -c oxlet -l event-qps -d 'events a second; 0 is no limit (deprecated)' -r -f
complete -c oxlet -l event-storage-age-limit -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l event-storage-event-limit -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l eviction-hard -d 'signal<amount that evicts at once (deprecated)' -r -f
complete -c oxlet -l eviction-max-pod-grace-period -d 'longest grace of an evicted pod, in seconds (deprecated)' -r -f
complete -c oxlet -l eviction-minimum-reclaim -d 'signal=amount that eviction frees at least (deprecated)' -r -f
complete -c oxlet -l eviction-pressure-transition-period -d 'time that a pressure condition stays (deprecated)' -r -f
complete -c oxlet -l eviction-soft -d 'signal<amount that evicts after a grace period (deprecated)' -r -f
complete -c oxlet -l eviction-soft-grace-period -d 'signal=time, the grace periods (deprecated)' -r -f
complete -c oxlet -l experimental-mounter-path -d 'program that mounts NFS exports, instead of mount (deprecated)' -r -f
complete -c oxlet -l feature-gates -d 'Gate=true,... to switch features (deprecated)' -r -f
complete -c oxlet -l file-check-frequency -d 'time between two looks at the static pods (deprecated)' -r -f
complete -c oxlet -l global-housekeeping-interval -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l hairpin-mode -d 'promiscuous-bridge, hairpin-veth or none (deprecated; no effect: the kubelet only checks it, bridges are the runtime\'s and CNI\'s)' -r -f
complete -c oxlet -l healthz-bind-address -d 'address of healthz (deprecated)' -r -f
complete -c oxlet -l healthz-port -d 'port of healthz; 0 is off (deprecated)' -r -f
complete -c oxlet -l hostname-override -d 'name of the node, instead of the host\'s' -r -f
complete -c oxlet -l housekeeping-interval -d 'time between two looks at container usage (no effect: cgroups are read when they are asked for, not each so often)' -r -f
complete -c oxlet -l http-check-frequency -d 'time between two looks at the static pod URL (deprecated)' -r -f
complete -c oxlet -l image-credential-provider-bin-dir -d 'folder of credential providers' -r -F
complete -c oxlet -l image-credential-provider-config -d 'file or folder that declares credential providers' -r -F
complete -c oxlet -l image-gc-high-threshold -d 'percent of disk used that starts image removal (deprecated)' -r -f
complete -c oxlet -l image-gc-low-threshold -d 'percent of disk used that ends it (deprecated)' -r -f
complete -c oxlet -l image-service-endpoint -d 'socket of the image service, when it is another (deprecated; no effect: images are the runtime\'s, whose plugin serves both services of CRI)' -r -F
complete -c oxlet -l kube-api-burst -d 'API requests at once (deprecated)' -r -f
complete -c oxlet -l kube-api-content-type -d 'content type of API requests (deprecated; no effect: bodies are JSON, which every API server speaks)' -r -f
complete -c oxlet -l kube-api-qps -d 'API requests a second (deprecated)' -r -f
complete -c oxlet -l kube-reserved -d 'resource=amount kept for Kubernetes (deprecated)' -r -f
complete -c oxlet -l kube-reserved-cgroup -d 'cgroup of Kubernetes\' daemons (deprecated)' -r -f
complete -c oxlet -l kubeconfig -d 'how to reach the API server; without it the agent is alone' -r -f
complete -c oxlet -l kubelet-cgroups -d 'cgroup of the agent (deprecated)' -r -f
complete -c oxlet -l lock-file -d 'file to hold a lock on' -r -F
complete -c oxlet -l log-flush-frequency -d 'longest time a log line waits (no effect: the log is not buffered)' -r -f
complete -c oxlet -l log-json-info-buffer-size -d 'buffer of that, in bytes (deprecated; no effect: the log is not buffered, so that a crash loses no line)' -r -f
complete -c oxlet -l log-text-info-buffer-size -d 'buffer of that, in bytes (deprecated; no effect: the log is not buffered, so that a crash loses no line)' -r -f
complete -c oxlet -l logging-format -d 'text or json (deprecated)' -r -f
complete -c oxlet -l machine-id-file -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l manifest-url -d 'URL of static pods (deprecated)' -r -f
complete -c oxlet -l manifest-url-header -d 'name:value headers for the static pod URL (deprecated)' -r -f
complete -c oxlet -l max-open-files -d 'files that the agent may have open (deprecated)' -r -f
complete -c oxlet -l max-pods -d 'pods that fit on this node (deprecated)' -r -f
complete -c oxlet -l maximum-dead-containers -d 'dead containers kept in all; negative is no limit (deprecated)' -r -f
complete -c oxlet -l maximum-dead-containers-per-container -d 'dead instances kept of a container (deprecated)' -r -f
complete -c oxlet -l memory-manager-policy -d 'None or Static (deprecated)' -r -f
complete -c oxlet -l minimum-container-ttl-duration -d 'youngest dead container to remove (deprecated)' -r -f
complete -c oxlet -l minimum-image-ttl-duration -d 'youngest unused image to remove (deprecated)' -r -f
complete -c oxlet -l node-ip -d 'address of the node, or one of each family' -r -f
complete -c oxlet -l node-labels -d 'key=value labels to register the node with' -r -f
complete -c oxlet -l node-status-max-images -d 'images in the node\'s status; -1 is all (deprecated)' -r -f
complete -c oxlet -l node-status-update-frequency -d 'time between two looks at the node\'s status (deprecated)' -r -f
complete -c oxlet -l oom-score-adj -d 'oom_score_adj of the agent (deprecated)' -r -f
complete -c oxlet -l pod-cidr -d 'addresses of pods, without an API server (deprecated)' -r -f
complete -c oxlet -l pod-manifest-path -d 'folder or file of static pods (deprecated)' -r -F
complete -c oxlet -l pod-max-pids -d 'processes that fit in a pod (deprecated)' -r -f
complete -c oxlet -l pods-per-core -d 'pods that fit on a core; 0 is no limit (deprecated)' -r -f
complete -c oxlet -l port -d 'port of the kubelet\'s server (deprecated)' -r -f
complete -c oxlet -l provider-id -d 'the node\'s id at its cloud provider' -r -f
complete -c oxlet -l qos-reserved -d 'memory=50% kept for the Guaranteed class (deprecated)' -r -f
complete -c oxlet -l read-only-port -d 'port of the read-only server; 0 is off (deprecated)' -r -f
complete -c oxlet -l register-with-taints -d 'key=value:effect taints of the node (deprecated)' -r -f
complete -c oxlet -l registry-burst -d 'image pulls at once, within registry-qps on average (deprecated)' -r -f
complete -c oxlet -l registry-qps -d 'image pulls a second; 0 is no limit (deprecated)' -r -f
complete -c oxlet -l reserved-cpus -d 'CPUs kept for the system, e.g. 0-1 (deprecated)' -r -f
complete -c oxlet -l reserved-memory -d 'node:memory=1Gi kept on a NUMA node (deprecated)' -r -f
complete -c oxlet -l resolv-conf -d 'resolver configuration for pods (deprecated)' -r -f
complete -c oxlet -l root-dir -d 'folder of pods, volumes and checkpoints' -r -F
complete -c oxlet -l runtime-cgroups -d 'cgroup of the container runtime' -r -f
complete -c oxlet -l runtime-request-timeout -d 'deadline of calls to the runtime (deprecated)' -r -f
complete -c oxlet -l storage-driver-buffer-duration -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l storage-driver-db -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l storage-driver-host -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l storage-driver-password -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l storage-driver-table -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l storage-driver-user -d 'without effect: a flag of cAdvisor\'s (deprecated)' -r -f
complete -c oxlet -l streaming-connection-idle-timeout -d 'without effect upstream (deprecated)' -r -f
complete -c oxlet -l sync-frequency -d 'longest time between two looks at a pod (deprecated)' -r -f
complete -c oxlet -l system-cgroups -d 'cgroup of processes that have none (deprecated)' -r -f
complete -c oxlet -l system-reserved -d 'resource=amount kept for the system (deprecated)' -r -f
complete -c oxlet -l system-reserved-cgroup -d 'cgroup of the system (deprecated)' -r -f
complete -c oxlet -l tls-cert-file -d 'certificate of the server (deprecated)' -r -f
complete -c oxlet -l tls-cipher-suites -d 'cipher suites of the server (deprecated)' -r -f
complete -c oxlet -l tls-curve-preferences -d 'key exchanges of the server, as Go\'s CurveID numbers (deprecated)' -r -f
complete -c oxlet -l tls-min-version -d 'lowest TLS version, e.g. VersionTLS12 (deprecated)' -r -f
complete -c oxlet -l tls-private-key-file -d 'key of that certificate (deprecated)' -r -f
complete -c oxlet -l topology-manager-policy -d 'none, best-effort, restricted or single-numa-node (deprecated)' -r -f
complete -c oxlet -l topology-manager-policy-options -d 'key=value options of that policy (deprecated)' -r -f
complete -c oxlet -l topology-manager-scope -d 'container or pod (deprecated)' -r -f
complete -c oxlet -s v -l v -d 'verbosity of the log' -r -f
complete -c oxlet -l vmodule -d 'pattern=level for single files' -r -f
complete -c oxlet -l volume-plugin-dir -d 'folder of FlexVolume drivers (deprecated; no effect: flex volumes are not mounted, as the event FailedMount says of a pod that has one)' -r -F
complete -c oxlet -l volume-stats-agg-period -d 'time between two sums of volume usage (deprecated)' -r -f
complete -c oxlet -l admin-socket -d 'socket that oxctl speaks to (Oxlet\'s own)' -r -F
complete -c oxlet -l container-gc-period -d 'how long the logs of a pod that is gone are kept, and the ended containers of a static one (Oxlet\'s own)' -r -f
complete -c oxlet -l object-manifests -d 'folder, watched, of the objects that pods may refer to: ConfigMaps, Secrets, Services, claims, volumes, CSIDrivers ... (Oxlet\'s own)' -r -F
complete -c oxlet -l plugins -d 'file that declares plugins; without it the runtime endpoint decides (Oxlet\'s own)' -r -F
complete -c oxlet -l anonymous-auth -d 'let anonymous requests in (deprecated)'
complete -c oxlet -l authentication-token-webhook -d 'ask the API server who a token is (deprecated)'
complete -c oxlet -l cgroups-per-qos -d 'one cgroup a QoS class and pod (deprecated)'
complete -c oxlet -l contention-profiling -d 'profile locks (deprecated; no effect: it profiles the locks of Go\'s runtime)'
complete -c oxlet -l cpu-cfs-quota -d 'enforce CPU limits (deprecated)'
complete -c oxlet -l enable-controller-attach-detach -d 'leave attaching volumes to the controller (deprecated)'
complete -c oxlet -l enable-debugging-handlers -d 'serve logs, exec, attach and port-forward (deprecated)'
complete -c oxlet -l enable-load-reader -d 'without effect: a flag of cAdvisor\'s (deprecated)'
complete -c oxlet -l enable-server -d 'run the kubelet\'s server (deprecated)'
complete -c oxlet -l exit-on-lock-contention -d 'end when another process wants that lock'
complete -c oxlet -l experimental-allocatable-ignore-eviction -d 'leave eviction thresholds out of allocatable (deprecated)'
complete -c oxlet -l fail-cgroupv1 -d 'refuse to start on cgroup v1'
complete -c oxlet -l fail-swap-on -d 'refuse to start when swap is on (deprecated)'
complete -c oxlet -s h -l help -d 'print this text'
complete -c oxlet -l kernel-memcg-notification -d 'let the kernel report memory thresholds (deprecated)'
complete -c oxlet -l local-storage-capacity-isolation -d 'limit ephemeral storage (deprecated)'
complete -c oxlet -l log-cadvisor-usage -d 'without effect: a flag of cAdvisor\'s (deprecated)'
complete -c oxlet -l log-json-split-stream -d 'errors apart, in JSON format (deprecated)'
complete -c oxlet -l log-text-split-stream -d 'errors apart, in text format (deprecated)'
complete -c oxlet -l make-iptables-util-chains -d 'keep the KUBE-IPTABLES-HINT chain (deprecated)'
complete -c oxlet -l protect-kernel-defaults -d 'refuse other kernel settings instead of changing them (deprecated)'
complete -c oxlet -l register-node -d 'make the node object (deprecated)'
complete -c oxlet -l register-schedulable -d 'register the node as schedulable (deprecated)'
complete -c oxlet -l rotate-certificates -d 'renew the client certificate before it expires (deprecated)'
complete -c oxlet -l rotate-server-certificates -d 'get serving certificates from the API server (deprecated)'
complete -c oxlet -l runonce -d 'refused, as upstream does (deprecated)'
complete -c oxlet -l seccomp-default -d 'RuntimeDefault where a pod says nothing'
complete -c oxlet -l serialize-image-pulls -d 'pull one image at a time (deprecated)'
complete -c oxlet -l storage-driver-secure -d 'without effect: a flag of cAdvisor\'s (deprecated)'
complete -c oxlet -l version -d 'print the version; raw prints it in full; vX.Y.Z changes what is reported'
complete -c oxlet -l alone -d 'be a node of the manifests in /etc/oxlet/manifests (or --pod-manifest-path): no API server, no configuration file; the machine decides the rest (Oxlet\'s own)'
complete -c oxlet -l console -d 'serve the node\'s page at /console/ of the HTTPS API too, to whom may use nodes/proxy (Oxlet\'s own)'
complete -c oxlet -l strict-decoding -d 'refuse manifests and configuration with unknown or repeated fields (Oxlet\'s own)'
