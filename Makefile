# The verbs, one line each. `make` lists them. Logic lives in scripts/.
.DEFAULT_GOAL := help
.PHONY: help init doctor fit up debug down status logs restart swap drain resume pin key usage chat setup test check fix bench-gateway soak-gateway

help: ## list the verbs
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Run
init: ## write .env and secrets/, never overwriting
	@scripts/stack init
doctor: ## check this host: found, wanted, fix
	@scripts/stack doctor
fit: ## does a model fit: make fit MODEL=… A="--gpu h200 --context 32k"
	@scripts/stack fit $(MODEL) $(A)
up: ## check, start, show progress, ask one question, print the URL
	@scripts/stack up
debug: ## as up, for one start: eager, blocking, verbose; make up ends it
	@scripts/stack up --debug
down: ## stop everything; keys, models and caches stay
	@scripts/stack down
status: ## one screen: model, phase, graphs, KV cache, requests
	@scripts/stack status
logs: ## what the services say (S=vllm for one of them)
	@scripts/stack logs $(S)
pin: ## hold all base images to their digests of today (A=--unpin lets go)
	@scripts/stack pin $(A)
restart: ## restart all services (S=gateway for one of them)
	@scripts/stack restart $(S)
swap: ## another model with no failed request: MODEL=… or PRESET=… (A="--dry-run MAX_MODEL_LEN=8k")
	@env -u MODEL -u PRESET scripts/stack swap $(if $(PRESET),--preset '$(PRESET)') $(if $(MODEL),'$(MODEL)') $(A)
drain: ## an engine takes no more requests (E=vllm); waits for what it runs
	@scripts/stack drain $(E)
resume: ## it takes requests again
	@scripts/stack resume $(E)

##@ Use
key: ## API keys: make key A="add NAME", "list", "show NAME", "revoke NAME"
	@scripts/stack key $(or $(A),list)
usage: ## requests and tokens: make usage A="--by model --since 2027-01-01"
	@scripts/stack usage $(A)
chat: ## talk to the model in the terminal
	@scripts/stack chat

##@ Develop
setup: ## make .venv from the locked requirements
	@scripts/stack setup
test: ## all tests that can run on this host (T=tests/unit for some)
	@scripts/test $(T)
bench-gateway: ## what the gateway's data path costs (A="--repeats 1 --only streaming")
	@scripts/bench-gateway $(A)
soak-gateway: ## mixed load on the gateway for M=60 minutes: does anything grow?
	@scripts/soak-gateway --minutes $(or $(M),60)
check: ## ruff, mypy and shellcheck
	@scripts/check
fix: ## what ruff can correct by itself
	@scripts/fix
