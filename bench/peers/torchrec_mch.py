#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshard mch` against real TorchRec: tables that train with evictions on 2 ranks, carried to 1, 4 and 8.

    bench/peers/torchrec_mch.py build/tools/reshard/reshard [--worlds 1,4,8] [--folder FOLDER] [--slots 6000]

Needs torch, torchrec and fbgemm-gpu-cpu (2.14, 1.9.2, 1.9.0): bench/peers/setup --torchrec. Two collections with three
tables, two of them of one name, under LFU, LRU and DistanceLFU, row-wise Adagrad, dense weights; model and optimizer have
a folder each. Then, for each world, one command, a model of that world, dcp.load of both folders, and a look-up of every
id that was known before: by the model's own forward, which must give the id's row, and in the rank's buffers, which must
give its momentum; what is not found must have been listed as evicted. Dense weights must be equal.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing

FULL = 2**63 - 1
TABLES = [("ec", "user", "LFU"), ("ec", "item", "DistanceLFU"), ("other", "user", "LRU")]
WIDTH = 8


def build(world, slots, sizes=None):
    from torchrec import EmbeddingCollection, EmbeddingConfig
    from torchrec.distributed import DistributedModelParallel, ModuleSharder  # noqa: F401
    from torchrec.distributed.mc_embedding import ManagedCollisionEmbeddingCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
    from torchrec.modules import mc_modules
    from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingCollection
    from torchrec.distributed.types import ShardingType
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    def collection(name):
        tables, modules = [], {}
        for place, (owner, table, policy) in enumerate(TABLES):
            if owner != name:
                continue
            size = (sizes or {}).get(f"{owner}.{table}", slots + place)
            tables.append(EmbeddingConfig(name=table, embedding_dim=WIDTH, num_embeddings=size,
                                          feature_names=[f"{owner}_{table}"]))
            modules[table] = mc_modules.MCHManagedCollisionModule(
                zch_size=size, device=torch.device("cpu"), eviction_interval=2, buckets=world,
                eviction_policy=getattr(mc_modules, policy + "_EvictionPolicy")())
        return ManagedCollisionEmbeddingCollection(
            EmbeddingCollection(tables=tables, device=torch.device("cpu")),
            mc_modules.ManagedCollisionCollection(modules, tables), return_remapped_features=True)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ec, self.other = collection("ec"), collection("other")
            self.dense = torch.nn.Linear(WIDTH, 1)

        def forward(self, first, second):
            found = {}
            for name, module, features in (("ec", self.ec, first), ("other", self.other, second)):
                embeddings = module(features)[0]
                embeddings = embeddings.wait() if hasattr(embeddings, "wait") else embeddings
                found.update({key: embeddings[key].values() for key in embeddings})
            return found, sum(self.dense(one).pow(2).sum() + one.sum() * 0.01 for one in found.values())

    constraints = {table: ParameterConstraints(sharding_types=[ShardingType.ROW_WISE.value],
                                               compute_kernels=["fused"]) for _, table, _ in TABLES}
    sharder = ManagedCollisionEmbeddingCollectionSharder(
        ec_sharder=__import__("torchrec.distributed.embedding", fromlist=["x"]).EmbeddingCollectionSharder(
            fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.1}))
    planner = EmbeddingShardingPlanner(topology=Topology(world_size=world, compute_device="cpu"),
                                       constraints=constraints)
    model = Model()
    plan = planner.collective_plan(model, [sharder], dist.group.WORLD)
    patch()
    return DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=[sharder])


def patch():
    """fbgemm has no CPU kernel that resets the rows of evicted ids."""
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen

    def reset(self, pruned_indices, pruned_indices_offsets, logical_table_ids, buffer_ids):
        for table in logical_table_ids.tolist():
            self.split_embedding_weights()[table].detach()[pruned_indices] = 0
            for state in self.split_optimizer_states()[table]:
                state[pruned_indices] = 0

    SplitTableBatchedEmbeddingBagsCodegen.reset_embedding_weight_momentum = reset


def features(ids):
    from torchrec import KeyedJaggedTensor

    first = [f"{owner}_{table}" for owner, table, _ in TABLES if owner == "ec"]
    second = [f"{owner}_{table}" for owner, table, _ in TABLES if owner == "other"]

    def of(keys):
        values = torch.cat([ids[key] for key in keys])
        return KeyedJaggedTensor.from_lengths_sync(
            keys=keys, values=values, lengths=torch.ones(len(values), dtype=torch.int32))

    return of(first), of(second)


def modules_of(model):
    """(collection.table, MCH module, weights of the rank, momentum of the rank)."""
    bare = model.module
    state = model.fused_optimizer.state_dict()["state"]
    for owner, table, _ in TABLES:
        ec = getattr(bare, owner)
        module = ec._managed_collision_collection._managed_collision_modules[table]
        key = next(key for key in state if key.startswith(owner + ".") and f".{table}." in key)
        momentum = next(value for name, value in state[key].items() if "momentum" in name)
        weight = ec._embedding_module.state_dict()[f"embeddings.{table}.weight"]
        yield f"{owner}.{table}", module, weight.local_shards()[0].tensor, momentum.local_shards()[0].tensor


def known(model):
    """id -> [row, momentum] of this rank's shards, by table."""
    result = {}
    for name, module, weight, momentum in modules_of(model):
        offset = module._output_global_offset
        live = module._mch_sorted_raw_ids != FULL
        rows = module._mch_remapped_ids_mapping[live] - offset
        result[name] = (module._mch_sorted_raw_ids[live].clone(), weight[rows].clone(), momentum[rows].clone())
    return result


def states(model):
    return model.state_dict(), {"optim": model.fused_optimizer.state_dict()}


def start(rank, world, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      LOCAL_WORLD_SIZE=str(world), MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)


def train(rank, world, port, folder, slots, steps):
    start(rank, world, port)
    torch.manual_seed(7)
    model = build(world, slots)
    model.train()
    random = torch.Generator().manual_seed(11 + rank)
    pool = torch.randint(0, 2**63 - 2, (4 * slots,), generator=torch.Generator().manual_seed(3), dtype=torch.int64)
    for _ in range(steps):
        pick = (torch.rand(slots // 8, generator=random) ** 3 * len(pool)).long()
        ids = {f"{owner}_{table}": pool[pick] for owner, table, _ in TABLES}
        model(*features(ids))[1].backward()
    model.eval()
    torch.save((known(model), model.module.dense.state_dict()), f"{folder}/known.{rank}.pt")
    model.train()  # in eval mode the offsets of shards are wrong
    weights, optimizer = states(model)
    if rank == 0:
        print(f"keys: {sorted(weights)}\n      {sorted(optimizer['optim']['state'])}", flush=True)
    dcp.save(weights, checkpoint_id=f"{folder}/model")
    dcp.save(optimizer, checkpoint_id=f"{folder}/optimizer")
    dist.destroy_process_group()


def check(rank, world, port, folder, slots, sizes, lost):
    start(rank, world, port)
    model = build(world, slots, sizes)
    model.train()
    weights, optimizer = states(model)
    dcp.load(weights, checkpoint_id=f"{folder}/model.{world}")
    dcp.load(optimizer, checkpoint_id=f"{folder}/optimizer.{world}")
    model.load_state_dict(weights)
    model.fused_optimizer.load_state_dict(optimizer["optim"])
    saved = [torch.load(f"{folder}/known.{one}.pt") for one in range(2)]
    assert all(torch.equal(value, saved[0][1][key]) for key, value in model.module.dense.state_dict().items())
    all_known = {name: [torch.cat([one[0][name][part] for one in saved]) for part in range(3)]
                 for name in saved[0][0]}
    model.eval()
    here = known(model)
    longest = max(len(ids) for ids, _, _ in all_known.values())
    forward, _ = model(*features({name.replace(".", "_"): torch.nn.functional.pad(ids, (0, longest - len(ids)))
                                  for name, (ids, _, _) in all_known.items()}))
    counts = {}
    for name, (ids, rows, momenta) in all_known.items():
        gone = torch.isin(ids, torch.tensor(lost[name], dtype=torch.int64))
        own = (forward[name.replace(".", "_")][: len(ids)] == rows).all(dim=1)
        assert bool((own | gone).all()), f"{name}: {int((~own & ~gone).sum())} ids have other rows"
        at = {int(id): place for place, id in enumerate(ids)}
        for id, row, momentum in zip(*here[name]):
            place = at[int(id)]
            assert not gone[place], f"{name}: id {int(id)} was listed as evicted and is there"
            assert torch.equal(row, rows[place]) and torch.equal(momentum, momenta[place]), f"{name}: id {int(id)}"
        there = torch.tensor([len(here[name][0])])
        dist.all_reduce(there)
        assert int(there) == int((~gone).sum()), f"{name}: {int(there)} ids of {len(ids)}, {int(gone.sum())} lost"
        counts[name] = f"{int(there)} of {len(ids)} ids have their rows and momenta, {int(gone.sum())} were evicted"
    if rank == 0:
        for name, text in counts.items():
            print(f"    {name}: {text}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reshard")
    parser.add_argument("--worlds", default="1,4,8")
    parser.add_argument("--folder")
    parser.add_argument("--slots", type=int, default=6000)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    folder = given.folder or tempfile.mkdtemp(prefix="torchrec_mch.")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/optimizer/.metadata"):
        multiprocessing.spawn(train, (2, 29511, folder, given.slots, given.steps), nprocs=2)
    cases = [(int(world), None) for world in given.worlds.split(",")]
    cases += [(4, {"ec.user": 2 * given.slots}), (3, {"ec.user": given.slots // 2, "other.user": 2 * given.slots})]
    for case, (world, sizes) in enumerate(cases):
        for one in ("model", "optimizer"):
            subprocess.run(["rm", "-rf", f"{folder}/{one}.{world}"], check=True)
        names = {f"{owner}.{table}": f"{owner}.{table}" if table == "user" else table for owner, table, _ in TABLES}
        command = [given.reshard, "mch", f"{folder}/model", f"{folder}/model.{world}", "--to", str(world), "--json",
                   "--also", f"{folder}/optimizer", f"{folder}/optimizer.{world}"]
        for name, size in (sizes or {}).items():
            command += ["--size", f"{names[name]}={size}"]
        began = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True,
                              env={**os.environ, "RESHARD_PYTHON": sys.executable})
        said = {one["name"]: one for one in json.loads(done.stdout)["tables"]}
        lost = {name: said[key]["evicted"] for name, key in names.items()}
        print(f"2 to {world} ranks{f', sizes {sizes}' if sizes else ''}: {time.monotonic() - began:.1f} s", flush=True)
        multiprocessing.spawn(check, (world, 29520 + case, folder, given.slots, sizes, lost), nprocs=world)


if __name__ == "__main__":
    main()
