//! The feature gates of Kubernetes 1.36, all of them: the kubelet accepts those of every component.

#[rustfmt::skip]
pub(super) const ALPHA: &[&str] = &[
    "APIServingWithRoutine", "AllowUnsafeMalformedObjectDeletion", "CBORServingAndStorage",
    "CPUManagerPolicyAlphaOptions", "CRIListStreaming", "CSIVolumeHealth", "ClientsAllowCBOR",
    "ClientsPreferCBOR", "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook", "ContainerStopSignals",
    "ControllerManagerReleaseLeaderElectionLockOnExit", "CrossNamespaceVolumeDataSource",
    "DRAListTypeAttributes", "DRANodeAllocatableResources", "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims", "EventedPLEG", "GangScheduling", "GenericWorkload",
    "HPAScaleToZero", "ImageVolumeWithDigest", "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory", "KubeletInUserNamespace", "LoggingAlphaOptions",
    "ManifestBasedAdmissionControlConfig", "MemoryQoS", "MutablePVNodeAffinity", "NativeHistograms",
    "PersistentVolumeClaimUnusedSinceTime", "PodAndContainerStatsFromCRI",
    "PodLevelResourceManagers", "PodLogsQuerySplitStreams", "PodsAPI", "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay", "RuntimeClassInImageCriApi", "ShardedListAndWatch",
    "StorageCapacityScoring", "StorageVersionAPI", "TaintTolerationComparisonOperators",
    "TopologyAwareWorkloadScheduling", "TopologyManagerPolicyAlphaOptions",
    "UserNamespacesHostNetworkSupport", "VolumeLimitScaling", "WindowsCPUAndMemoryAffinity",
    "WorkloadAwarePreemption", "WorkloadWithJob",
];

#[rustfmt::skip]
pub(super) const BETA_ON: &[&str] = &[
    "APIResponseCompression", "APIServerIdentity", "AllowParsingUserUIDFromCertAuth", "AtomicFIFO",
    "AuthorizePodWebsocketUpgradeCreatePermission", "CPUManagerPolicyBetaOptions",
    "CRDObservedGenerationTracking", "ClearingNominatedNodeNameAfterBinding",
    "ClientsAllowCARotation", "ClientsAllowTLSCacheGC", "ComponentFlagz", "ComponentStatusz",
    "ConstrainedImpersonation", "ContainerCheckpoint", "ContainerRestartRules", "ContextualLogging",
    "DRAConsumableCapacity", "DRADeviceBindingConditions", "DRADeviceTaints", "DRAExtendedResource",
    "DRAPartitionableDevices", "DRAResourceClaimDeviceStatus",
    "DRAResourceClaimGranularStatusAuthorization", "DRASchedulerFilterTimeout",
    "DeclarativeValidationBeta", "DeploymentReplicaSetTerminatingReplicas",
    "DetectCacheInconsistency", "EnvFiles", "ExtendWebSocketsToKubelet", "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority", "HPAConfigurableTolerance", "HostnameOverride",
    "InOrderInformersBatchProcess", "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers", "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages", "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders", "ListFromCacheSnapshot",
    "LoggingBetaOptions", "MatchLabelKeysInPodTopologySpread",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge", "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs", "NodeDeclaredFeatures",
    "NominatedNodeNameForExpectation", "OpenAPIEnums", "OpportunisticBatching",
    "PLEGOnDemandRelist", "PodDeletionCost", "PodLevelResources",
    "PodReadyToStartContainersCondition", "PodTopologyLabelsAdmission", "PortForwardWebsockets",
    "PreventStaticPodAPIReferences", "RelaxedServiceNameValidation", "ReloadKubeletClientCAFile",
    "ReloadKubeletServerCertificateFile", "RemoteRequestHeaderUID", "ResourceHealthStatus",
    "ResourceHealthStatusMessage", "RestartAllContainersOnContainerExits",
    "RotateKubeletServerCertificate", "SchedulerAsyncPreemption", "SchedulerPopFromBackoffQ",
    "ServiceAccountNodeAudienceRestriction", "SizeBasedListCostEstimate",
    "StaleControllerConsistencyDaemonSet", "StaleControllerConsistencyJob",
    "StaleControllerConsistencyReplicaSet", "StaleControllerConsistencyStatefulSet",
    "StatefulSetSemanticRevisionComparison", "StorageVersionHash", "StrictIPCIDRValidation",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics", "TokenRequestServiceAccountUIDValidation",
    "TopologyManagerPolicyBetaOptions", "TranslateStreamCloseWebsocketRequests",
    "UnauthenticatedHTTP2DOSMitigation", "UnknownVersionInteroperabilityProxy",
    "UnlockWhileProcessingFIFO", "WatchCacheInitializationPostStartHook", "WatchList",
    "WatchListClient", "WindowsGracefulNodeShutdown",
];

#[rustfmt::skip]
pub(super) const BETA_OFF: &[&str] = &[
    "ClusterTrustBundle", "ClusterTrustBundleProjection", "ConcurrentWatchObjectDecode",
    "CoordinatedLeaderElection", "DRADeviceTaintRules",
    "LocalStorageCapacityIsolationFSQuotaMonitoring", "MaxUnavailableStatefulSet",
    "PodCertificateRequest", "SELinuxMount", "SchedulerAsyncAPICalls", "StorageVersionMigrator",
];

/// Grown up or on their way out, and still switchable.
#[rustfmt::skip]
pub(super) const SETTLED_ON: &[&str] = &[
    "AllowServiceExternalIPs", "CustomCPUCFSQuotaPeriod", "DRAPrioritizedList",
    "DisableCPUQuotaWithExclusiveCPUs", "InformerResourceVersion",
    "KubeletPodResourcesListUseActivePods", "MutatingAdmissionPolicy",
    "ServiceCIDRStatusFieldWiping", "StorageNamespaceIndex",
];

/// Those that are on, switchable or not, and on their way out.
#[rustfmt::skip]
pub(super) const DEPRECATED_ON: &[&str] = &[
    "AggregatedDiscoveryRemoveBetaType", "DisableCPUQuotaWithExclusiveCPUs",
    "DisableNodeKubeProxyVersion", "KubeletPodResourcesListUseActivePods",
    "ServiceCIDRStatusFieldWiping", "StorageNamespaceIndex",
];

#[rustfmt::skip]
pub(super) const SETTLED_OFF: &[&str] = &[
    "AllowDNSOnlyNodeCSR", "AllowInsecureKubeletCertificateSigningRequests",
    "ChangeContainerStatusOnKubeletRestart", "DeclarativeValidationTakeover", "KMSv1",
    "KubeletRegistrationGetOnExistsOnly", "WindowsHostNetwork",
];

#[rustfmt::skip]
pub(super) const LOCKED_OFF: &[&str] = &[
    "AllowOverwriteTerminationGracePeriodSeconds", "GitRepoVolumeDriver", "SeparateCacheWatchRPC",
];

#[rustfmt::skip]
pub(super) const LOCKED_ON: &[&str] = &[
    "APIServerTracing", "AggregatedDiscoveryRemoveBetaType", "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource", "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors",
    "BtreeWatchCache", "CPUManagerPolicyOptions", "CRDValidationRatcheting",
    "CSIServiceAccountTokenSecrets", "ConsistentListFromCache", "CustomResourceFieldSelectors",
    "DRAAdminAccess", "DeclarativeValidation", "DisableAllocatorDualWrite",
    "DisableNodeKubeProxyVersion", "DynamicResourceAllocation", "ExecProbeTimeout",
    "ExternalServiceAccountTokenSigner", "ImageMaximumGCAge", "ImageVolume", "InOrderInformers",
    "InPlacePodVerticalScaling", "JobBackoffLimitPerIndex", "JobManagedBy",
    "JobPodReplacementPolicy", "JobSuccessPolicy", "KubeletCgroupDriverFromCRI",
    "KubeletFineGrainedAuthz", "KubeletPSI", "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet", "KubeletTracing", "LogarithmicScaleDown",
    "MatchLabelKeysInPodAffinity", "MultiCIDRServiceAllocator", "MutableCSINodeAllocatableCount",
    "NFTablesProxyMode", "NodeInclusionPolicyInPodTopologySpread", "NodeLogQuery", "NodeSwap",
    "OrderedNamespaceDeletion", "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero",
    "PodObservedGenerationTracking", "PodSchedulingReadiness", "PreferSameTrafficDistribution",
    "ProcMountType", "RecoverVolumeExpansionFailure", "RecursiveReadOnlyMounts",
    "RelaxedDNSSearchValidation", "RelaxedEnvironmentVariableValidation",
    "ResilientWatchCacheInitialization", "RetryGenerateName", "SELinuxChangePolicy",
    "SELinuxMountReadWriteOncePod", "SchedulerQueueingHints", "SeparateTaintEvictionController",
    "ServiceAccountTokenJTI", "ServiceAccountTokenNodeBinding",
    "ServiceAccountTokenNodeBindingValidation", "ServiceAccountTokenPodNodeInfo",
    "SidecarContainers", "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf", "StructuredAuthenticationConfiguration",
    "SupplementalGroupsPolicy", "SystemdWatchdog", "TopologyManagerPolicyOptions",
    "UserNamespacesSupport", "VolumeAttributesClass", "WinDSR", "WinOverlay",
];

/// A gate that is on needs these to be on as well; those that are locked on are left out.
#[rustfmt::skip]
pub(super) const NEEDS: &[(&str, &[&str])] = &[
    ("ClusterTrustBundleProjection", &["ClusterTrustBundle"]),
    ("DRADeviceBindingConditions", &["DRAResourceClaimDeviceStatus"]),
    ("DRADeviceTaintRules", &["DRADeviceTaints"]),
    ("DRAResourceClaimGranularStatusAuthorization", &["DRAResourceClaimDeviceStatus"]),
    ("DRAWorkloadResourceClaims", &["GenericWorkload"]),
    ("ExtendWebSocketsToKubelet", &["NodeDeclaredFeatures"]),
    ("GangScheduling", &["GenericWorkload"]),
    ("GracefulNodeShutdownBasedOnPodPriority", &["GracefulNodeShutdown"]),
    ("InPlacePodLevelResourcesVerticalScaling", &["NodeDeclaredFeatures", "PodLevelResources"]),
    ("InPlacePodVerticalScalingInitContainers", &["NodeDeclaredFeatures"]),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", &["MatchLabelKeysInPodTopologySpread"]),
    ("PodLevelResourceManagers", &["PodLevelResources"]),
    ("ResourceHealthStatusMessage", &["ResourceHealthStatus"]),
    ("RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"]),
    ("StaleControllerConsistencyDaemonSet", &["AtomicFIFO"]),
    ("StaleControllerConsistencyJob", &["AtomicFIFO"]),
    ("StaleControllerConsistencyReplicaSet", &["AtomicFIFO"]),
    ("StaleControllerConsistencyStatefulSet", &["AtomicFIFO"]),
    ("StorageVersionAPI", &["APIServerIdentity"]),
    ("TopologyAwareWorkloadScheduling", &["GenericWorkload"]),
    ("UnknownVersionInteroperabilityProxy", &["APIServerIdentity"]),
    ("UserNamespacesHostNetworkSupport", &["NodeDeclaredFeatures"]),
    ("WindowsGracefulNodeShutdown", &["GracefulNodeShutdown"]),
    ("WorkloadAwarePreemption", &["GangScheduling"]),
    ("WorkloadWithJob", &["GenericWorkload"]),
];

/// Gates of the kubelet that change nothing here when they are set: what is off is not there yet, and what is on is
/// done whatever the gate says. `ReloadKubeletClientCAFile` is not one of them: the client CA file is read again with
/// it and without it, as upstream does, and the hint in the handshake that the gate controls is not given here.
#[rustfmt::skip]
pub(super) const UNHEEDED: &[&str] = &[
    "CRIListStreaming", "ChangeContainerStatusOnKubeletRestart", "ContainerRestartRules", "EnvFiles",
    "HostnameOverride", "ImageVolumeWithDigest", "KubeletInUserNamespace",
    "KubeletPodResourcesListUseActivePods", "KubeletRegistrationGetOnExistsOnly",
    "KubeletSeparateDiskGC", "LocalStorageCapacityIsolationFSQuotaMonitoring", "PLEGOnDemandRelist",
    "PodReadyToStartContainersCondition", "ReloadKubeletServerCertificateFile",
    "TopologyManagerPolicyAlphaOptions", "UserNamespacesHostNetworkSupport",
];
