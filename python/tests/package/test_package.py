"""The installed package: headers, library, CMake and pkg-config files, device specs, a Debian package;
the examples and the snippets of docs/embedding.md, built against it and run."""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import conftest
import pytest

ROOT = conftest.ROOT
BUILD = conftest.BIN.parent
FLAGS = ["-Wall", "-Wextra", "-Werror"]


def call(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    to = tmp_path_factory.mktemp("prefix")
    call("cmake", "--install", BUILD, "--prefix", to, "--component", "retrograd")
    return to


def outside():
    """The environment of somebody who knows nothing of the source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RETROGRAD")}


@pytest.mark.parametrize("example, data", [("train_cpp", "digits.csv"), ("train_c", ".")])
def test_an_example_builds_against_the_package_and_learns(prefix, tmp_path, example, data):
    call("cmake", "-S", ROOT / "examples" / example, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}",
         "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=" + " ".join(FLAGS),
         "-DCMAKE_C_FLAGS=" + " ".join(FLAGS))
    call("cmake", "--build", tmp_path)
    told = call(tmp_path / example, ROOT / "examples/data" / data, env=outside())
    reached = float(re.findall(r"([0-9.]+)% of the held-out", told)[-1])
    assert reached >= 95


@pytest.mark.parametrize("options", [[], ["--whole-step"]])
def test_the_python_example_learns_with_the_installed_package(prefix, options):
    package = next(prefix.rglob("retrograd/native")).parents[1]
    told = call("python3", ROOT / "examples/train_python/train.py", ROOT / "examples/data/digits.csv",
                *options, env=outside() | {"PYTHONPATH": str(package)}, cwd=prefix)
    assert float(re.findall(r"([0-9.]+)% of the held-out", told)[-1]) >= 95


def test_the_wheels_parts_lie_where_the_package_looks(tmp_path):
    """What `pip install .` assembles: the package, and what CMake installs into it."""
    package = tmp_path / "retrograd"
    shutil.copytree(ROOT / "python/retrograd", package, ignore=shutil.ignore_patterns("__pycache__"))
    call("cmake", "--install", BUILD, "--prefix", package / "native", "--component", "wheel")
    program = """
from retrograd import native
print(native.find())
graph = native.Graph.parse('%a = input name="a" kind=saved f32[2]\\n%b = exp %a\\noutput %b name="b"')
assert native.Plan(graph, spec="h100").predicted_ns > 0
"""
    found = call("python3", "-c", program, env=outside() | {"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert found.strip() == str(package / "native/libretrograd.so")


def test_pytorch_finds_the_backend_by_its_name(tmp_path):
    """Through the entry point of an installed distribution, written here as pip writes it."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    information = tmp_path / "retrograd-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: retrograd\nVersion: 0.1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items())
             for group, named in points.items()]
    (information / "entry_points.txt").write_text("\n".join(lines))
    program = "import torch; assert 'retrograd' in torch._dynamo.list_backends()\n" \
              "assert callable(torch._dynamo.lookup_backend('retrograd'))"
    path = f"{tmp_path}:{ROOT / 'python'}"
    call(sys.executable, "-c", program, env=outside() | {"PYTHONPATH": path,
                                                        "RETROGRAD_LIBRARY": library_of_build()})


def library_of_build():
    return str(BUILD / "bin/libretrograd.so")


@pytest.mark.parametrize("example, told", [("train.py", "epoch 20: loss 0.0"),
                                           ("explain.py", "kernels and library calls"),
                                           ("compare_plans.py", "nothing fused")])
def test_the_examples_of_the_backend_run(tmp_path, example, told):
    shutil.copy(ROOT / "examples/pytorch" / example, tmp_path / "example.py")
    program = (
        "import sys, torch; from retrograd.backend import backend; "
        "torch._dynamo.register_backend(backend, name='retrograd'); "
        "sys.argv = ['example.py', 'page.html']; exec(open('example.py').read())"
    )
    environment = outside() | {"PYTHONPATH": str(ROOT / "python"),
                               "RETROGRAD_LIBRARY": library_of_build()}
    assert told in call(sys.executable, "-c", program, env=environment, cwd=tmp_path)
    if example == "explain.py":
        assert "<html" in (tmp_path / "page.html").read_text()


def test_the_cells_of_the_notebook_run(tmp_path):
    cells = json.loads((ROOT / "examples/pytorch/explain.ipynb").read_text())["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    head = ("import torch; from retrograd.backend import backend\n"
            "torch._dynamo.register_backend(backend, name='retrograd')\n")
    environment = outside() | {"PYTHONPATH": str(ROOT / "python"),
                               "RETROGRAD_LIBRARY": library_of_build()}
    check = "\nassert explanation._repr_html_().startswith('<iframe')"
    call(sys.executable, "-c", head + code + check, env=environment, cwd=tmp_path)


def test_the_whole_step_is_the_same_training(prefix, tmp_path):
    call("cmake", "-S", ROOT / "examples/train_cpp", "-B", tmp_path,
         f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", tmp_path)
    data = ROOT / "examples/data/digits.csv"
    whole = call(tmp_path / "train_cpp", data, "--whole-step", env=outside())
    parts = call(tmp_path / "train_cpp", data, "--save", tmp_path, env=outside())

    def losses(text):
        return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", text)]

    assert losses(whole) == pytest.approx(losses(parts), abs=2e-3)
    for part in ("forward", "backward", "update"):
        name = f"digits.{part}.rgt"
        assert (tmp_path / name).read_text() == (ROOT / "examples/data" / name).read_text()


def snippets(language):
    text = (ROOT / "docs/embedding.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@pytest.mark.parametrize("language, compiler, expected",
                         [("cpp", ["g++", "-std=c++20"], "0.75"), ("c", ["gcc", "-std=c99"], "1")])
def test_the_snippets_of_the_page_run(prefix, tmp_path, language, compiler, expected):
    programs = [s for s in snippets(language) if "int main" in s]
    assert len(programs) == 1
    source = tmp_path / f"snippet.{language}"
    source.write_text(programs[0])
    flags = call("pkg-config", "--cflags", "--libs", "retrograd",
                 env={**os.environ, "PKG_CONFIG_PATH": str(next(prefix.rglob("pkgconfig")))}).split()
    library = next(prefix.rglob("libretrograd.so")).parent
    call(*compiler, *FLAGS, source, "-o", tmp_path / "snippet", *flags, f"-Wl,-rpath,{library}")
    assert call(tmp_path / "snippet", env=outside()).split() == [expected]


def test_the_python_snippets_of_the_page_run(prefix, tmp_path):
    package = next(prefix.rglob("retrograd/native")).parents[1]
    environment = outside() | {"PYTHONPATH": str(package)}
    told = [
        call("python3", "-c", program, env=environment, cwd=tmp_path).split()
        for program in snippets("python")
    ]
    assert told == [["0.75"], ["[]"]]


STATIC = """cmake_minimum_required(VERSION 3.25)
project(static LANGUAGES C CXX)
find_package(Retrograd 0.1 CONFIG REQUIRED COMPONENTS static)
add_executable(program program.c)
target_link_libraries(program PRIVATE Retrograd::retrograd_static)
"""


def test_the_static_library_links_through_cmake(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(STATIC)
    program = next(s for s in snippets("c") if "int main" in s)
    (tmp_path / "program.c").write_text(program)
    call("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", tmp_path / "build")
    assert call(tmp_path / "build/program", env=outside()).split() == ["1"]
    assert "libretrograd.so" not in call("ldd", tmp_path / "build/program")


def test_the_static_library_links_through_pkg_config(prefix, tmp_path):
    program = tmp_path / "program.c"
    program.write_text(next(s for s in snippets("c") if "int main" in s))
    flags = call("pkg-config", "--static", "--cflags", "--libs", "retrograd",
                 env={**os.environ, "PKG_CONFIG_PATH": str(next(prefix.rglob("pkgconfig")))})
    flags = flags.replace("-lretrograd", "-l:libretrograd.a").split()
    call("gcc", "-std=c99", *FLAGS, program, "-o", tmp_path / "program", *flags, "-lm")
    assert call(tmp_path / "program", env=outside()).split() == ["1"]


def exported(library):
    lines = call("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def test_the_library_exports_its_functions_alone(prefix):
    names = exported(next(prefix.rglob("libretrograd.so"))) - {"RETROGRAD_0"}
    header = (ROOT / "include/retrograd/retrograd.h").read_text()
    declared = set(re.findall(r"^RG_API [^;(]*?\b(rg_\w+)\(", header, re.M))
    assert len(declared) > 40
    assert names == declared


def test_the_headers_include_the_standard_library_and_each_other_alone(prefix):
    for header in (prefix / "include/retrograd").iterdir():
        for name in re.findall(r"#include [<\"](.*?)[>\"]", header.read_text()):
            assert "/" not in name or name.startswith("retrograd/"), (header, name)


# A model of onnxruntime, Identity(x: float[2]), as bytes of its protobuf form.
ONNX = """
def field(number, payload):
    return bytes([number << 3 | 2, len(payload)]) + payload
def tensor(name):
    shape = field(2, field(1, field(1, bytes([8, 2]))[2:]))
    return field(1, name) + field(2, field(1, bytes([8, 1]) + shape))
node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
graph = field(1, node) + field(2, b"g") + field(11, tensor(b"x")) + field(12, tensor(b"y"))
model = bytes([8, 8]) + field(7, graph) + field(8, bytes([16, 13]))
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
assert session.run(None, {"x": numpy.ones(2, numpy.float32)})[0].tolist() == [1, 1]
"""


@pytest.mark.parametrize("order", itertools.permutations(["torch", "onnx", "ours"]))
def test_the_library_pytorch_and_onnxruntime_share_a_process(prefix, order):
    library = next(prefix.rglob("libretrograd.so"))
    loads = {"torch": "import torch", "onnx": "import numpy, onnxruntime" + ONNX,
             "ours": f"import ctypes; rg = ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)"}
    uses = """
text = b'%a = input name="a" kind=saved f32[2]\\n%b = exp %a\\noutput %b name="b"\\n'
graph, plan = ctypes.c_void_p(), ctypes.c_void_p()
assert rg.rg_graph_parse(text, ctypes.c_size_t(len(text)), ctypes.byref(graph)) == 0
assert rg.rg_plan_create(graph, None, ctypes.byref(plan)) == 0
x = torch.ones(3, requires_grad=True)
x.exp().sum().backward()
assert torch.allclose(x.grad, x.exp())
print("both work")
"""
    program = "\n".join([loads[name] for name in order] + [ONNX, uses])
    python = ROOT / ".venv/bin/python"
    assert "both work" in call(python if python.exists() else shutil.which("python3"), "-c", program,
                               env=outside())


def test_the_debian_package_works_in_another_root(tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb")
    call("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", tmp_path / "pack")
    package = next((tmp_path / "pack").glob("*.deb"))
    control = call("dpkg-deb", "--field", package)
    assert re.search(r"^Depends: .*libprotobuf", control, re.M)
    root = tmp_path / "root"
    call("dpkg-deb", "-x", package, root)
    usr = root / "usr"
    library = next(usr.rglob("libretrograd.so")).parent
    call("gcc", "-std=c99", *FLAGS, ROOT / "examples/train_c/train.c", "-o", tmp_path / "train_c",
         f"-I{usr}/include", f"-L{library}", "-lretrograd", f"-Wl,-rpath,{library}")
    told = call(tmp_path / "train_c", ROOT / "examples/data", env=outside())
    assert "of the held-out images recognised" in told
