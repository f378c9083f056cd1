import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/**
 * Runs the main methods of Apache Kafka's tools one after the other in one process, since a JVM takes seconds to start.
 *
 * Each request is a count and that many strings: the class, its arguments and, last, what it reads on standard input.
 * Each answer is the exit code and two strings, standard output and standard error. A string is its length and its UTF-8.
 */
public final class Tools {
    /** Ends a tool; some catch even this, and say so, so the exit code is noted elsewhere. */
    private static final class Ended extends RuntimeException {}

    private static volatile Integer exitCode;

    /** Stays the standard output while what is behind it changes: Scala's println remembers the first one for ever. */
    private static final class Switch extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            target.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            target.write(bytes, offset, length);
        }

        private synchronized byte[] taken() {
            byte[] taken = target.toByteArray();
            target = new ByteArrayOutputStream();
            return taken;
        }
    }

    /** Sets one of the procedures of Kafka's Exit, which 4.4 has in another package. */
    private static void onExit(String setter, Consumer<Object[]> procedure) {
        try {
            for (Method method : exit().getMethods()) {
                if (method.getName().equals(setter)) {
                    Class<?> type = method.getParameterTypes()[0];
                    method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                        (proxy, called, with) -> {
                            procedure.accept(with);
                            return null;
                        }));
                }
            }
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Class<?> exit() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before44) {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        }
    }

    public static void main(String[] args) throws IOException {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        PrintStream complaints = System.err;
        Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> thrown.printStackTrace(complaints));
        Switch out = new Switch();
        Switch err = new Switch();
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        List<Runnable> hooks = new ArrayList<>();
        onExit("setExitProcedure", with -> end((Integer) with[0]));
        onExit("setHaltProcedure", with -> end((Integer) with[0]));
        onExit("setShutdownHookAdder", with -> hooks.add((Runnable) with[1]));
        while (true) {
            List<String> words = new ArrayList<>();
            try {
                for (int left = requests.readInt(); left > 0; left--) {
                    words.add(new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8));
                }
            } catch (EOFException closed) {
                return;
            }
            String typed = words.remove(words.size() - 1);
            System.setIn(new ByteArrayInputStream(typed.getBytes(StandardCharsets.UTF_8)));
            exitCode = null;
            int code = run(words.get(0), words.subList(1, words.size()).toArray(new String[0]));
            for (Runnable hook : hooks) {
                try {
                    hook.run();
                } catch (RuntimeException thrown) {
                    thrown.printStackTrace();
                }
            }
            hooks.clear();
            answers.writeInt(code);
            for (byte[] said : Arrays.asList(out.taken(), err.taken())) {
                answers.writeInt(said.length);
                answers.write(said);
            }
            answers.flush();
        }
    }

    private static void end(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Ended();
    }

    private static int run(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException thrown) {
            if (exitCode != null) {
                return exitCode;
            }
            thrown.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            return 1;
        }
    }
}
