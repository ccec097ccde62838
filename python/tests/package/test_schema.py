"""The schema that the package carries is the repository's."""

import shutil
import subprocess

import conftest
import pytest
from google.protobuf import descriptor_pb2
from retrograd import dtypes, schema


def test_the_carried_descriptor_is_that_of_the_schema_file(tmp_path):
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("protoc is not installed")
    out = tmp_path / "graph.descriptor"
    folder = conftest.ROOT / "graph" / "proto"
    subprocess.run(
        [protoc, f"-I{folder}", f"--descriptor_set_out={out}", "graph.proto"], check=True
    )
    fresh, carried = (
        descriptor_pb2.FileDescriptorSet.FromString(p.read_bytes())
        for p in (out, schema.DESCRIPTOR_PATH)
    )
    assert fresh == carried, "run the protoc command in retrograd/schema.py"


def test_every_dtype_of_the_schema_is_known():
    enum = schema.TensorType.DESCRIPTOR.fields_by_name["dtype"].enum_type
    names = {v.number: v.name for v in enum.values if 0 < v.number < 10}
    for number, name in names.items():
        dtype = dtypes.torch_dtype(number)
        assert dtypes.number_of(dtype) == number
        short = name.removeprefix("DTYPE_").lower().replace("fp", "f").replace("uint", "u")
        assert dtypes.name_of(dtype) == short.replace("int", "i")
