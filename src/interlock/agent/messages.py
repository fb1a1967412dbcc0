"""The messages of agents, for controllers of your own: gRPC, as `interlock/wire/fleet/fleet.proto` has it.

from grpc import aio
from interlock.agent.messages import fleet, services

async with aio.insecure_channel(address) as channel:
    agent = services.AgentStub(channel)
    print(await agent.GetStatus(fleet.StatusRequest()))
"""

from __future__ import annotations

from interlock.wire.fleet import fleet_pb2, fleet_pb2_grpc

fleet = fleet_pb2
"""The messages and enums of `fleet.proto`: `WorkloadRequest`, `WorkloadStats`, `StartRequest`, …"""
services = fleet_pb2_grpc
"""The client of an agent, `AgentStub`, with a method for each call of `fleet.proto`."""
