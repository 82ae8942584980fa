//! Pods on a real agent, from manifest to the last trace of them: each case on the fake runtime, on containerd and on the
//! native runtime. What they survive: [`fake_proofs`] and [`containerd_proofs`].

mod containerd_proofs;
mod fake_proofs;
mod images;
mod life;
mod sources;
