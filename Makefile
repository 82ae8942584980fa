# Every command a person needs. `make` alone tells which.
export CLIPPY_CONF_DIR := $(CURDIR)/.ci
# What `.ci/install` found no package of.
export PATH := $(abspath $(or $(CARGO_TARGET_DIR),target))/tools:$(PATH)
NEXTEST := cargo nextest run --config-file .ci/nextest.toml
# What ships: the agent, its plugins, and the programs that they start.
SHIPPED := $(foreach crate,agent confine monitor oxlet-cni oxlet-oci oxlet-plugins,--package $(crate))
# Of these, what `.ci/static` does not build.
DYNAMIC := --package agent --package oxlet-plugins
export TARGET
comma := ,
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER ?= aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER ?= aarch64-linux-gnu-gcc

.PHONY: help build run test test-v2 differential field check bench fuzz deny install deb rpm
help: ## what can be made
	@grep -hE '^[a-z0-9 -]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

build: ## oxlet, oxctl and the plugins, as they ship (target/release); for another machine with TARGET=
	.ci/portable cargo build --release $(DYNAMIC) --bins $(if $(TARGET),--target $(TARGET))
	.ci/portable .ci/static

install: ## what `make build` has built, below DESTDIR and PREFIX (/usr/local)
	.ci/package install

deb: build ## a Debian package of it (target/package)
	.ci/package deb

rpm: build ## an RPM package of it (target/package)
	.ci/package rpm

run: ## start the agent with the best runtime here, run config/sample-pod.yaml, show it
	@echo "The first time this builds what it runs, and nothing else: four minutes on two cores."
	CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo build $(SHIPPED) --package rig --package runtime-fake --bins
	$${CARGO_TARGET_DIR:-target}/debug/try-oxlet $(if $(UNTIL),--until $(UNTIL)) $(if $(RUNTIME),--runtime $(RUNTIME))

test: ## everything: logic, actors, real processes, real containerd
	.ci/install test
	-.ci/field-layers nginx postgresql redis
	cargo build --workspace --bins
	$(NEXTEST) --workspace

test-v2: ## what depends on cgroup v2, in an emulated machine (a few minutes; as root)
	.ci/install test-v2
	cargo build --workspace --bins
	.ci/test-v2

differential: ## what a program sees natively and on containerd, SEEDS pods (default 40) from FIRST on
	.ci/install test
	cargo build --package oxlet-plugins --package oxlet-oci --package monitor --bins
	DIFFERENTIAL_SEEDS=$(or $(SEEDS),40) DIFFERENTIAL_FIRST=$(or $(FIRST),1) $(NEXTEST) --profile campaign --no-capture --package differential

field: ## real software through its life, natively and on containerd: all of integration/tests/data/field, or FIELD=nginx,redis
	.ci/install test
	.ci/field-layers $(subst $(comma), ,$(FIELD))
	cargo build --workspace --bins
	FIELD=$(or $(FIELD),all) $(NEXTEST) --profile campaign --no-capture --workspace -E 'test(/suite::field::/)'

check: ## format, lints, the build without OpenTelemetry, arrows between crates, what tidy proves of the source, paths in the docs
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo check --workspace --no-default-features --quiet
	.ci/arrows
	cargo run --quiet --package tidy
	.ci/documents

bench: ## speed and memory, as a table; beside a kubelet where KUBELET_BIN names one
	.ci/install test
	cargo build --release --workspace --bins
	cargo build --release --package kernel --example bench
	.ci/static
	$${CARGO_TARGET_DIR:-target}/release/bench $(ARGS)

fuzz: ## the fuzz targets for manifests, config, checkpoints and conflists by libFuzzer, SECONDS each (default 20)
	.ci/fuzz $(or $(SECONDS),20)

deny: ## bans, licences and sources of every crate that we build on
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@0.20.2
	cargo deny --config .ci/deny.toml check bans licenses sources
