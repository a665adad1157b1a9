#!/usr/bin/env bash
# Submits a run to a Ray cluster that is there already, from anywhere its dashboard can be reached.
#
#   RAY_API_SERVER_ADDRESS=http://head:8265 configs/cluster/ray-job.sh index -c cluster.yaml --quiet
#
# Run it in the folder that holds the config: it travels to the cluster and is the job's working directory. The nodes
# have rag-pipeline installed, all of one version; where the folder is the repository's, its dependencies will do.
# Head and submitter need `ray[default]` too, which the rayproject/ray images have.
#
# The config says `runtime: {ray_address: auto}`, names index and source by URL or by a path that all nodes mount, and
# says how many GPUs to wait for (`wait_for_gpus`). Credentials are the nodes' own: what a job is submitted with can be
# read on the dashboard.
#
# It follows the run's output and ends with 0 when the run did, else with 1: `ray job submit` keeps no other codes.
# After Ctrl-C here the run goes on; `ray job stop ID` ends it, and the same line does the rest.
set -euo pipefail

exec ray job submit --working-dir . -- python -m rag_pipeline.cli "$@"
