# Two commands matter: `make run` shows the product on a local Kubernetes, `make test` runs every test.

.PHONY: help run test clean-cluster fmt lint unit fuzz generated policy e2e bench bench-compare bench-incident bench-growth

help: ## This list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build, start a local Kubernetes (or use KUBECONFIG), deploy, and show a failover with the real client.
	@scripts/run.sh

test: ## Everything: format, lints, policy, unit, integration, end to end.
	@scripts/test.sh

clean-cluster: ## Take the local Kubernetes away: processes, mounts, cgroups, namespace, files.
	@scripts/clean-cluster.sh

fmt: ## Format the code.
	cargo fmt --all

lint: ## Format check and lints, warnings are errors.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

unit: ## Unit and integration tests, without a cluster.
	cargo test --workspace --locked

fuzz: ## A bounded run of the fuzz targets (FUZZ_SECONDS each).
	@scripts/fuzz.sh

policy: ## Licences, duplicates and sources of all dependencies.
	@scripts/policy.py

e2e: ## Only the scenarios on a real cluster.
	@scripts/test.sh e2e

bench: ## Measure the master on this machine (about 15 minutes).
	@scripts/bench.sh alone

bench-compare: ## The same beside the C++ master from PyPI, in turns, and the table of bars (about 30 minutes).
	@scripts/bench.sh compare

bench-incident: ## A client with millions of keys expires under load, beside the C++ master (about 40 minutes).
	@scripts/bench.sh incident

bench-growth: ## How cost grows with keys, clients, connections and batches, with plots (about 20 minutes).
	@scripts/bench.sh growth
