//! A double of the Kubernetes API server, for tests: objects are JSON in memory, behaviour on the wire is upstream's.
