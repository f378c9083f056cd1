package judge;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/** Writes a line of JSON as soon as a test ends (-Djudge.results=FILE), so that a JVM that dies takes no result with it. */
public final class Results implements TestExecutionListener {
    private static final String FILE = System.getProperty("judge.results");
    private static final int LONGEST = 600;

    private final Map<String, Long> began = new ConcurrentHashMap<>();

    @Override
    public void executionStarted(TestIdentifier test) {
        began.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (test.isTest() || result.getStatus() == TestExecutionResult.Status.FAILED) {
            write(test, result);
        }
    }

    private synchronized void write(TestIdentifier test, TestExecutionResult result) {
        if (FILE == null) {
            return;
        }
        double seconds = (System.nanoTime() - began.getOrDefault(test.getUniqueId(), System.nanoTime())) / 1e9;
        String why = result.getThrowable().map(Results::told).orElse("");
        String line = String.format("{\"test\":%s,\"name\":%s,\"status\":%s,\"seconds\":%.1f,\"why\":%s}%n", quoted(nameOf(test)),
            quoted(test.getDisplayName()), quoted(result.getStatus().name().toLowerCase()), seconds, quoted(why));
        try {
            Files.writeString(Path.of(FILE), line, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The method and the number of the invocation, where it has several: a display name is long and holds ports. */
    private static String nameOf(TestIdentifier test) {
        String method = test.getSource().map(source -> source instanceof MethodSource one ? one.getMethodName()
            : source instanceof ClassSource ? "class" : "").orElse("");
        String id = test.getUniqueId();
        int at = id.lastIndexOf("-invocation:#");
        return at < 0 ? method : method + "[" + id.substring(at + "-invocation:#".length(), id.indexOf(']', at)) + "]";
    }

    /** What failed and where: the innermost cause is what a broker said. */
    private static String told(Throwable fault) {
        StringBuilder said = new StringBuilder(fault.toString());
        for (Throwable cause = fault.getCause(); cause != null && cause != cause.getCause(); cause = cause.getCause()) {
            said.append(" <- ").append(cause);
        }
        return said.length() > LONGEST ? said.substring(0, LONGEST) : said.toString();
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(' ');
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
