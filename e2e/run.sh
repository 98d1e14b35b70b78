#!/usr/bin/env bash
# Scenarios on real nodes (backend netns): all of them and the three suites, or with "core" a part that takes a few
# minutes. What is missing is installed. Nothing stays behind, however it ends.
#
#   sudo make e2e        sudo make e2e-core
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
what=${1:-all}
PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin

if [ "$(id -u)" != 0 ]; then
  echo "e2e: it needs root: network namespaces, Open vSwitch, iptables"
  # Where it is expected to run it is a failure, elsewhere it says so and is no more than that.
  [ -z "${TOWTANK_ROOT:-}${TOWTANK_OVS:-}" ] && [ "$what" = core ] && exit 0
  exit 1
fi

declare -A package=(
  [ovs-vswitchd]=openvswitch-switch [ip]=iproute2 [iptables-restore]=iptables [ipset]=ipset [ethtool]=ethtool [nft]=nftables
  [conntrack]=conntrack [go]=golang-go [make]=make
)
missing=()
for tool in "${!package[@]}"; do command -v "$tool" >/dev/null || missing+=("${package[$tool]}"); done
if [ ${#missing[@]} -gt 0 ]; then
  echo "e2e: installing ${missing[*]}"
  apt-get update -q && apt-get install -yq --no-install-recommends "${missing[@]}" || exit 1
fi

go build -o bin/ ./cmd/... || exit 1
jobs=${JOBS:-2}
if [ "$what" = core ]; then
  exec bin/towtank run --backend netns --jobs "$jobs" $(grep -v '^#' e2e/core.txt)
fi

failed=()
began=$SECONDS
bin/towtank run --backend netns --jobs "$jobs" scenarios/ || failed+=("scenarios")
export TOWTANK_BACKEND=netns TOWTANK_PROGRAMS=$PWD/bin
go test -count=1 -timeout 40m -p "$jobs" ./scenarios/suites/... || failed+=("suites")
TOWTANK_E2E=1 go test -count=1 -timeout 30m -v -run Show ./e2e/netns | grep -v '^=== ' || failed+=("what real nodes must show")
echo "e2e: $((SECONDS - began)) s; failed: ${failed[*]:-nothing}"
[ ${#failed[@]} -eq 0 ]
