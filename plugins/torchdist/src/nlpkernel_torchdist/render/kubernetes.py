"""A manifest for Kubernetes: an Indexed Job, a pod for each machine, and the service by which the pods find the first.

Valid for Kubernetes 1.31 and later (podFailurePolicy is stable there).
"""

from __future__ import annotations

import shlex
from typing import Any

from nlpkernel.errors import UsageError, fail
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.render.job import PORT, Job
from nlpkernel_torchdist.render.torchrun import SHUTDOWN, agent_lines
from nlpkernel_torchdist.render.yaml import documents

#: The exit codes of a mistake, which a restart does not mend, and of a worker that SIGTERM ended.
_MISTAKE, _ENDED = 2, 143


def manifest(job: Job) -> str:
    """The manifest, for kubectl apply. Raise UsageError (TDI026) where there is no image."""
    image = job.option("image")
    if image is None:
        raise fail(
            UsageError,
            "TDI026",
            "Kubernetes needs an image that has nlpkernel and the plugins of the plan",
            owner=OWNER,
            hint="name it: --image registry/name:tag",
        )
    return "\n".join([*job.head(), documents([_service(job), _job(job, image)])])


def _meta(job: Job) -> dict[str, Any]:
    namespace = job.option("namespace")
    labels = {"app.kubernetes.io/name": "nlpkernel", "nlpkernel/run": job.label}
    return {"name": job.label, **({"namespace": namespace} if namespace else {}), "labels": labels}


def _service(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(job),
        "spec": {
            # No address of its own: each pod has a name, which is known before the pod is ready.
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"nlpkernel/run": job.label},
            "ports": [{"name": "workers", "port": PORT}],
        },
    }


def _job(job: Job, image: str) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [_MISTAKE]}},
    ]
    if job.restarts:
        # A pod that is moved is no failure of the run, and neither are those that save and end with it.
        rules.append(
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        )
        rules.append({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [_ENDED]}})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(job),
        "spec": {
            "completionMode": "Indexed",
            "completions": job.nodes,
            "parallelism": job.nodes,
            # Where one worker fails all end, so each restart costs every pod.
            "backoffLimit": job.restarts * job.nodes,
            "podFailurePolicy": {"rules": rules},
            "template": {
                "metadata": {"labels": _meta(job)["labels"]},
                "spec": _pod(job, image),
            },
        },
    }


def _pod(job: Job, image: str) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "runs", "persistentVolumeClaim": {"claimName": job.option("claim")}},
    ]
    mounts = [{"name": "runs", "mountPath": job.option("mount")}]
    if job.per_node > 1 or job.option("gpus"):
        # NCCL and the workers of data loaders share memory, of which a container has 64 MB.
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    return {
        "subdomain": job.label,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": SHUTDOWN,
        "containers": [
            {
                "name": "worker",
                "image": image,
                "workingDir": job.option("mount"),
                "command": _command(job),
                "env": _environment(job),
                "ports": [{"name": "workers", "containerPort": PORT}],
                "resources": _resources(job),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }


def _command(job: Job) -> list[str]:
    if job.nodes == 1:
        # On one machine nothing but our own supervisor is needed.
        more = ["--set", f"communicator.workers={job.workers}"] if job.workers != job.planned else []
        return [*job.words, *more, *(["--restarts", str(job.restarts)] if job.restarts else [])]
    if job.per_node == 1:
        return list(job.words)
    meeting = [
        ["--master-addr", "$MASTER_ADDR", "--master-port", str(PORT), "--node-rank", "$JOB_COMPLETION_INDEX"]
    ]
    # The Job starts all pods again where one fails.
    lines = [word for line in agent_lines(job, 0, meeting) for word in line]
    plain = {"$MASTER_ADDR", "$JOB_COMPLETION_INDEX"}
    text = " ".join(f'"{word}"' if word in plain else shlex.quote(word) for word in [*lines, *job.words])
    return ["/bin/sh", "-c", f"exec {text}"]


def _environment(job: Job) -> list[dict[str, str]]:
    values = {"OMP_NUM_THREADS": str(job.option("cpus"))}
    if job.nodes > 1:
        values["MASTER_ADDR"] = f"{job.label}-0.{job.label}"
        if job.per_node == 1:
            # The number of the worker is that of the pod: JOB_COMPLETION_INDEX.
            values |= {"MASTER_PORT": str(PORT), "WORLD_SIZE": str(job.workers)}
    return [{"name": name, "value": value} for name, value in values.items()]


def _resources(job: Job) -> dict[str, Any]:
    gpus, memory = job.option("gpus"), job.memory(job.per_node)
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {"cpu": str(job.per_node * job.option("cpus"))}
    if memory:
        requests["memory"] = limits["memory"] = memory
    if gpus:
        limits["nvidia.com/gpu"] = str(job.per_node * gpus)
    return {"requests": requests, **({"limits": limits} if limits else {})}
