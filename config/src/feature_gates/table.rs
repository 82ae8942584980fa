//! The feature gates of Kubernetes 1.36, all of them: the kubelet accepts those of every component.

#[rustfmt::skip]
pub(super) const ALPHA: &[&str] = &[
    "APIServingWithRoutine", "AllowUnsafeMalformedObjectDeletion", "CBORServingAndStorage",
    "CPUManagerPolicyAlphaOptions", "CSIVolumeHealth", "ClientsAllowCBOR", "ClientsPreferCBOR",
    "CloudControllerManagerWatchBasedRoutesReconciliation", "CloudControllerManagerWebhook",
    "ComponentFlagz", "ComponentStatusz", "ConstrainedImpersonation", "ContainerStopSignals",
    "CrossNamespaceVolumeDataSource", "CustomCPUCFSQuotaPeriod", "DRAConsumableCapacity",
    "DRADeviceBindingConditions", "DRADeviceTaintRules", "DRADeviceTaints", "DRAExtendedResource",
    "DRAPartitionableDevices", "EventedPLEG", "GangScheduling", "GenericWorkload", "HPAScaleToZero",
    "ImageVolumeWithDigest", "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory",
    "InTreePluginPortworxUnregister", "KubeletInUserNamespace", "LoggingAlphaOptions", "MemoryQoS",
    "MutablePVNodeAffinity", "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "PodAndContainerStatsFromCRI", "PodLogsQuerySplitStreams", "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay", "RestartAllContainersOnContainerExits",
    "RuntimeClassInImageCriApi", "StorageCapacityScoring", "StorageVersionAPI",
    "StrictIPCIDRValidation", "TaintTolerationComparisonOperators",
    "TopologyManagerPolicyAlphaOptions", "UnknownVersionInteroperabilityProxy",
    "UserNamespacesHostNetworkSupport", "VolumeLimitScaling", "WindowsCPUAndMemoryAffinity",
];

#[rustfmt::skip]
pub(super) const BETA_ON: &[&str] = &[
    "APIResponseCompression", "APIServerIdentity", "AllowParsingUserUIDFromCertAuth", "AtomicFIFO",
    "AuthorizePodWebsocketUpgradeCreatePermission", "CPUManagerPolicyBetaOptions",
    "ClearingNominatedNodeNameAfterBinding", "ContainerCheckpoint", "ContainerRestartRules",
    "ContextualLogging", "DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus",
    "DRASchedulerFilterTimeout", "DeclarativeValidation", "DeploymentReplicaSetTerminatingReplicas",
    "DetectCacheInconsistency", "DisableCPUQuotaWithExclusiveCPUs", "EnvFiles",
    "ExtendWebSocketsToKubelet", "ExternalServiceAccountTokenSigner", "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority", "HPAConfigurableTolerance", "HostnameOverride",
    "ImageVolume", "InOrderInformers", "InOrderInformersBatchProcess", "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages", "KubeletPSI", "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet", "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders", "ListFromCacheSnapshot", "LoggingBetaOptions",
    "MatchLabelKeysInPodTopologySpread", "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "MaxUnavailableStatefulSet", "MutableCSINodeAllocatableCount", "NodeDeclaredFeatures",
    "NominatedNodeNameForExpectation",
    "OpenAPIEnums", "OpportunisticBatching", "PodDeletionCost", "PodLevelResources",
    "PodReadyToStartContainersCondition", "PodTopologyLabelsAdmission", "PortForwardWebsockets",
    "PreventStaticPodAPIReferences", "ProcMountType", "RelaxedServiceNameValidation",
    "ReloadKubeletServerCertificateFile", "RemoteRequestHeaderUID", "ResourceHealthStatus",
    "ResourceHealthStatusMessage", "RotateKubeletServerCertificate", "SELinuxChangePolicy",
    "SELinuxMountReadWriteOncePod", "SchedulerAsyncPreemption", "SchedulerPopFromBackoffQ",
    "ServiceAccountNodeAudienceRestriction", "SizeBasedListCostEstimate",
    "StatefulSetSemanticRevisionComparison", "StorageVersionHash",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics", "TokenRequestServiceAccountUIDValidation",
    "TopologyManagerPolicyBetaOptions", "TranslateStreamCloseWebsocketRequests",
    "UnauthenticatedHTTP2DOSMitigation", "UnlockWhileProcessingFIFO",
    "WatchCacheInitializationPostStartHook", "WatchList", "WatchListClient",
    "WindowsGracefulNodeShutdown",
];

#[rustfmt::skip]
pub(super) const BETA_OFF: &[&str] = &[
    "CRDObservedGenerationTracking", "ClusterTrustBundle", "ClusterTrustBundleProjection",
    "ConcurrentWatchObjectDecode", "CoordinatedLeaderElection", "DeclarativeValidationTakeover",
    "LocalStorageCapacityIsolationFSQuotaMonitoring", "MutatingAdmissionPolicy",
    "PodCertificateRequest", "SELinuxMount", "SchedulerAsyncAPICalls", "StorageVersionMigrator",
];

/// Grown up or on their way out, and still switchable.
#[rustfmt::skip]
pub(super) const SETTLED_ON: &[&str] = &[
    "DisableNodeKubeProxyVersion", "InformerResourceVersion", "KubeletPodResourcesListUseActivePods",
    "NodeLogQuery", "StorageNamespaceIndex",
];

/// Those of them that are on their way out.
pub(super) const DEPRECATED_ON: &[&str] = &[
    "DisableNodeKubeProxyVersion",
    "KubeletPodResourcesListUseActivePods",
    "StorageNamespaceIndex",
];

#[rustfmt::skip]
pub(super) const SETTLED_OFF: &[&str] = &[
    "AllowDNSOnlyNodeCSR", "AllowInsecureKubeletCertificateSigningRequests",
    "ChangeContainerStatusOnKubeletRestart", "GitRepoVolumeDriver",
    "InPlacePodVerticalScalingAllocatedStatus", "KMSv1", "KubeletRegistrationGetOnExistsOnly",
    "SeparateCacheWatchRPC", "WindowsHostNetwork",
];

#[rustfmt::skip]
pub(super) const LOCKED_OFF: &[&str] = &["AllowOverwriteTerminationGracePeriodSeconds"];

#[rustfmt::skip]
pub(super) const LOCKED_ON: &[&str] = &[
    "APIServerTracing", "AggregatedDiscoveryRemoveBetaType", "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource", "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors", "BtreeWatchCache",
    "CPUManagerPolicyOptions", "CRDValidationRatcheting", "CSIServiceAccountTokenSecrets",
    "ConsistentListFromCache", "CustomResourceFieldSelectors", "DisableAllocatorDualWrite",
    "DynamicResourceAllocation", "ExecProbeTimeout", "HonorPVReclaimPolicy", "ImageMaximumGCAge",
    "InPlacePodVerticalScaling", "JobBackoffLimitPerIndex", "JobManagedBy", "JobPodReplacementPolicy",
    "JobSuccessPolicy", "KubeletCgroupDriverFromCRI", "KubeletFineGrainedAuthz", "KubeletTracing",
    "LogarithmicScaleDown", "MatchLabelKeysInPodAffinity", "MultiCIDRServiceAllocator",
    "NFTablesProxyMode", "NodeInclusionPolicyInPodTopologySpread", "NodeSwap",
    "OrderedNamespaceDeletion", "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero",
    "PodObservedGenerationTracking", "PodSchedulingReadiness", "PreferSameTrafficDistribution",
    "RecoverVolumeExpansionFailure", "RecursiveReadOnlyMounts", "RelaxedDNSSearchValidation",
    "RelaxedEnvironmentVariableValidation", "ResilientWatchCacheInitialization", "RetryGenerateName",
    "SchedulerQueueingHints", "SeparateTaintEvictionController", "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding", "ServiceAccountTokenNodeBindingValidation",
    "ServiceAccountTokenPodNodeInfo", "SidecarContainers", "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf", "StructuredAuthenticationConfiguration",
    "SupplementalGroupsPolicy", "SystemdWatchdog", "TopologyManagerPolicyOptions",
    "UserNamespacesSupport", "VolumeAttributesClass", "WinDSR", "WinOverlay",
];

/// A gate that is on needs these to be on as well.
#[rustfmt::skip]
pub(super) const NEEDS: &[(&str, &[&str])] = &[
    ("ClusterTrustBundleProjection", &["ClusterTrustBundle"]),
    ("DRADeviceBindingConditions", &["DRAResourceClaimDeviceStatus"]),
    ("DRADeviceTaintRules", &["DRADeviceTaints"]),
    ("DeclarativeValidationTakeover", &["DeclarativeValidation"]),
    ("GangScheduling", &["GenericWorkload"]),
    ("GracefulNodeShutdownBasedOnPodPriority", &["GracefulNodeShutdown"]),
    ("ImageVolumeWithDigest", &["ImageVolume"]),
    ("InPlacePodLevelResourcesVerticalScaling", &["NodeDeclaredFeatures", "PodLevelResources"]),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", &["MatchLabelKeysInPodTopologySpread"]),
    ("ResourceHealthStatusMessage", &["ResourceHealthStatus"]),
    ("RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"]),
    ("StorageVersionAPI", &["APIServerIdentity"]),
    ("UnknownVersionInteroperabilityProxy", &["APIServerIdentity"]),
    ("WindowsGracefulNodeShutdown", &["GracefulNodeShutdown"]),
];
