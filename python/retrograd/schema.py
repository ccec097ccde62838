"""The messages of graph.proto, without generated code.

Code that protoc generates only runs with the protobuf runtime it was generated for. The package
holds the schema as a serialized descriptor set instead (`graph.descriptor`, made by
`protoc -Igraph/proto --descriptor_set_out=python/retrograd/graph.descriptor graph.proto`; a test
compares the two), from which every runtime since 4 builds the classes.
"""

import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DESCRIPTOR_PATH = pathlib.Path(__file__).with_name("graph.descriptor")
SCHEMA_MAJOR = 1
SCHEMA_MINOR = 1


def _load():
    """Returns {"Graph": class, ...} for every message of the schema."""
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR_PATH.read_bytes())
    pool = descriptor_pool.DescriptorPool()  # our own: nothing else can clash with it
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    names = [m.name for file in files.file for m in file.message_type]
    descriptors = {name: pool.FindMessageTypeByName(f"retrograd.v1.{name}") for name in names}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(d) for name, d in descriptors.items()}
    factory = message_factory.MessageFactory(pool)  # runtimes before 4.22
    return {name: factory.GetPrototype(d) for name, d in descriptors.items()}


_MESSAGES = _load()
Graph = _MESSAGES["Graph"]
Node = _MESSAGES["Node"]
TensorType = _MESSAGES["TensorType"]
Value = _MESSAGES["Value"]
Attr = _MESSAGES["Attr"]
Origin = _MESSAGES["Origin"]
Output = _MESSAGES["Output"]
InputInfo = _MESSAGES["InputInfo"]

# InputKind
SAVED, PARAMETER, TANGENT, CONSTANT = 1, 2, 3, 4


def load(path):
    """Returns the Graph message of the file at `path`."""
    return Graph.FromString(pathlib.Path(path).read_bytes())
